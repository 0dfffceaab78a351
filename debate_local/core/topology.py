"""Who hears whom. A topology is a word; its graph is a function of the word, the number of agents and a seed.

    full        everybody hears everybody else (Du et al. 2023)
    none        nobody hears anybody
    ring        everybody hears the two neighbours on a ring
    star        the first agent hears all others, and they hear only it
    nearest:2   everybody hears the 2 nearest on the ring: the next, the one before, the next but one, ... (2 is a ring)
    random:0.4  0.4 of all pairs, drawn by a seed, hear each other
    graph       as a mapping says: agent -> the agents that it hears

Sparse graphs: 2406.11776 (equal or better with fewer tokens). In words and mappings agents are numbered from 1, as in
prompts; in the values that come out, from 0.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from .chat import derive_seed

WORDS = "full, ring, star, nearest:K (such as nearest:2), random:DENSITY (such as random:0.4), graph, none"
Hears = tuple[tuple[int, ...], ...]
Graph = Mapping[str, Sequence[int]]


def hears(topology: str, agents: int, seed: int = 0, graph: Graph | None = None) -> Hears:
    """For each agent, those that it hears, in agent order. seed matters to `random:DENSITY` only.

    The values must have passed `check_topology`.
    """
    word, _, argument = topology.partition(":")
    if word == "random":
        return _random(agents, float(argument), seed)
    if word == "graph":
        heard = {int(agent): set(others) for agent, others in (graph or {}).items()}
        return tuple(tuple(sorted(other - 1 for other in heard.get(agent + 1, ()))) for agent in range(agents))
    return _fixed(word, agents, int(argument or 0))


@lru_cache(maxsize=256)
def _fixed(word: str, agents: int, nearest: int) -> Hears:
    everybody = range(agents)
    if word == "none":
        return ((),) * agents
    if word == "star":
        return tuple(tuple(everybody[1:]) if agent == 0 else (0,) for agent in everybody)
    if word == "full":
        return tuple(tuple(other for other in everybody if other != agent) for agent in everybody)
    near = 2 if word == "ring" else nearest
    steps = [step for distance in range(1, agents) for step in (distance, -distance)]
    return tuple(
        tuple(sorted(list(dict.fromkeys((agent + step) % agents for step in steps))[:near])) for agent in everybody
    )


def _random(agents: int, density: float, seed: int) -> Hears:
    """Exactly the share of pairs that is asked for, so that cost does not vary by chance."""
    pairs = list(combinations(range(agents), 2))
    heard: list[list[int]] = [[] for _ in range(agents)]
    drawn = sorted(pairs, key=lambda pair: derive_seed(seed, "pair", *pair))
    for one, other in drawn[: round(density * len(pairs))]:
        heard[one].append(other)
        heard[other].append(one)
    return tuple(tuple(sorted(others)) for others in heard)


def check_topology(topology: str, agents: int, graph: Graph | None = None) -> None:
    """Raise ValueError for a word that is none, a number that cannot be, and a graph with unknown or no agents."""
    word, _, argument = topology.partition(":")
    if word in ("full", "ring", "star", "graph", "none") and not argument:
        pass
    elif word == "nearest":
        if not argument.isdecimal() or not 1 <= int(argument) < max(2, agents):
            raise ValueError(
                f"protocol.topology={topology}: the number of neighbours must be a whole number from 1 to "
                f"{max(1, agents - 1)}, fewer than the {agents} agents"
            )
    elif word == "random":
        if not _is_share(argument):
            raise ValueError(f"protocol.topology={topology}: the density must be between 0 and 1, such as random:0.4")
    else:
        raise ValueError(f"protocol.topology must be one of: {WORDS}; got {topology!r}")
    if (word == "graph") != (graph is not None):
        raise ValueError(
            "protocol.topology=graph and protocol.graph={agent: [agents it hears], ...} need each other; the graph may "
            "be the path of a YAML file"
        )
    if graph is not None:
        _check_graph(graph, agents)


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def _check_graph(graph: Graph, agents: int) -> None:
    if not graph or not any(graph.values()):
        raise ValueError("protocol.graph says of no agent whom it hears; nobody hearing anybody is topology=none")
    known = range(1, agents + 1)
    for agent, others in graph.items():
        if not isinstance(others, (list, tuple)):
            raise ValueError(f"protocol.graph, agent {agent}: expected a list of the agents it hears, got {others!r}")
        for named in (agent, *others):
            if not str(named).isdecimal() or int(named) not in known:
                raise ValueError(f"protocol.graph names agent {named!r}; the agents are 1 to {agents}")
        if int(agent) in map(int, others):
            raise ValueError(f"protocol.graph: agent {agent} cannot hear itself; its own replies are its history")
