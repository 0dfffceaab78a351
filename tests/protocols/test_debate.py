"""The protocol of Du et al. and what has been varied since. Run: pytest tests/protocols/test_debate.py"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from debate_local.analysis.debates import flips
from debate_local.core.chat import ChatRequest, Completion, digest, request_key
from debate_local.core.scheduler import ask_in_turn
from debate_local.core.setting import Agent
from debate_local.core.transcript import Item, Transcript, Turn
from debate_local.protocols.debate import debate
from debate_local.protocols.self_consistency import self_consistency
from debate_local.protocols.single import single
from tests.fakes import Sums, marked
from tests.protocols.scene import Known, hold, refusal, setting_for

NAMES = ("one", "two", "three", "four", "five")


def said(agent: int, round: int) -> str:
    """What an agent says: its number in round 0; from then on 3, but for the second agent, who never gives in."""
    return f"I am agent {NAMES[agent]} in round {round}. Answer: {agent + 1 if round == 0 or agent == 1 else 3}"


def scripted(request: ChatRequest) -> Completion:
    agent, round = request.id.split(".")[:2]
    return Completion(said(int(agent), int(round)))


def says(*rounds: str) -> Callable[[ChatRequest], Completion]:
    """What agents answer, a word a round with a digit an agent: `123` and then `113`; `-` has no answer, `x` fails."""

    def answer(request: ChatRequest) -> Completion:
        agent, round = (int(part) for part in request.id.split(".")[:2])
        word = rounds[min(round, len(rounds) - 1)][agent]
        if word == "x":
            return Completion.failure("out of memory")
        return Completion(f"agent {agent} in round {round}. " + ("" if word == "-" else f"Answer: {word}"))

    return answer


def debated(
    answer: Callable[[ChatRequest], Completion] = scripted, cast: tuple[Agent, ...] = (Agent(),), **options: Any
) -> Transcript:
    return hold(debate, answer, cast, **options)


def spoken(transcript: Transcript) -> list[tuple[int, int]]:
    """Who spoke when: (round, agent)."""
    return [(turn.round, turn.agent) for turn in transcript.turns if not turn.step]


def heard_by(transcript: Transcript, round: int) -> list[set[int]]:
    """Whom each agent heard in a round."""
    return [{agent for agent, _ in turn.heard} for turn in transcript.turns if turn.round == round and not turn.step]


def last_prompt(turn: Turn) -> str:
    return turn.request.messages[-1].content


def test_with_the_defaults_every_request_is_what_it_always_was() -> None:
    # Caches hold completions by these keys: whoever changes a default or a word of a prompt loses them.
    keys: list[str] = []

    def silent(request: ChatRequest) -> Completion:
        kinds = (Completion(""), Completion.failure("x"), marked(request), marked(request))
        return kinds[int(request_key(request, ""), 16) % 4]

    def play(
        protocol: Any, cast: tuple[Agent, ...], answer: Callable[[ChatRequest], Completion], **options: int
    ) -> None:
        for item in Sums(3).items():

            def reply(requests: list[ChatRequest]) -> list[Completion]:
                keys.extend(request_key(request, "") for request in requests)
                return [answer(request) for request in requests]

            setting = setting_for(protocol, cast, 5, Sums())
            keys.append(str(ask_in_turn(protocol(item, setting, **options), reply).decision.answer.key))

    doubting = (Agent(persona="You doubt."), Agent(sampling=replace(Agent().sampling, temperature=0.3)))
    for cast in ((Agent(),), doubting):
        for answer in (marked, silent):
            for agents in range(1, 6):
                for rounds in range(1, 5):
                    for topology in ("full", "none"):
                        play(debate, cast, answer, agents=agents, rounds=rounds, topology=topology)
                play(single, cast, answer, agents=agents)
                play(self_consistency, cast, answer, samples=agents)
    assert (len(keys), digest(keys)) == (4560, "d1f0114116b885b6c6b7ee74142ae1dc")


def test_each_prompt_is_the_last_one_with_the_reply_and_one_more_message() -> None:
    turns = debated(agents=3, rounds=3).turns
    for turn in turns:
        if turn.round:
            before = next(t for t in turns if (t.agent, t.round) == (turn.agent, turn.round - 1))
            own = turn.request.messages
            assert own[:-2] == before.request.messages
            assert (own[-2].role, own[-2].content) == ("assistant", before.completion.text)
            assert own[-1].role == "user"


def test_peers_are_the_others_last_replies_in_agent_order() -> None:
    turns = debated(agents=3, rounds=3).turns
    for turn in turns:
        expected = [(agent, turn.round - 1) for agent in range(3) if agent != turn.agent] if turn.round else []
        assert list(turn.heard) == expected
        last = turn.request.messages[-1].content
        places = [last.index(said(agent, round)) for agent, round in expected]
        assert places == sorted(places)
        assert said(turn.agent, turn.round - 1) not in last


def test_all_agents_begin_with_the_same_prompt_and_no_system_message() -> None:
    first = [turn.request for turn in debated(agents=3, rounds=1).turns]
    assert len({request.messages for request in first}) == 1
    assert [message.role for message in first[0].messages] == ["user"]
    assert len({request.sampling.seed for request in first}) == 3


def test_a_persona_is_a_system_message_that_peers_never_see() -> None:
    # Hazard D19: only the reply is passed on, not the speaker's set-up.
    turns = debated(agents=2, rounds=2, cast=(Agent(persona="You are a hawk."), Agent(persona="You are a dove."))).turns
    systems = [[m.content for m in turn.request.messages if m.role == "system"] for turn in turns]
    assert systems == [["You are a hawk."], ["You are a dove."]] * 2
    assert not any("hawk" in m.content for m in turns[3].request.messages[1:])


def test_topology_none_is_as_many_agents_alone() -> None:
    together = debated(agents=3, rounds=3, topology="none").turns
    alone = debated(agents=1, rounds=3).turns
    assert [t.request for t in together if t.agent == 0] == [t.request for t in alone]


def test_an_agent_whose_peers_all_said_nothing_checks_itself() -> None:
    def only_one_speaks(request: ChatRequest) -> Completion:
        return scripted(request) if request.id.startswith("0.") else Completion("")

    turns = debated(only_one_speaks, agents=3, rounds=2).turns
    spoke, silent = turns[3], turns[4]
    alone = debated(agents=1, rounds=2).turns[1]
    assert spoke.request.messages == alone.request.messages
    assert spoke.heard == ()
    # A silent one hears the one who spoke, in one message with the question: roles must alternate.
    assert silent.heard == ((0, 0),)
    assert [message.role for message in silent.request.messages] == ["user"]
    assert said(0, 0) in silent.request.messages[0].content


def test_reasoning_is_not_passed_on() -> None:
    def thinking(request: ChatRequest) -> Completion:
        return Completion("Answer: 3", reasoning="SECRET", raw="<think>SECRET</think>Answer: 3")

    for turn in debated(thinking, agents=3, rounds=3).turns:
        assert not any("SECRET" in message.content for message in turn.request.messages)


def test_the_decision_is_the_majority_of_the_last_round_only() -> None:
    decision = debated(agents=3, rounds=2).decision
    assert (decision.rule, decision.answer.value, decision.counts) == ("majority", "3", (("3", 2.0), ("2", 1.0)))


def test_a_failed_last_turn_is_no_vote_and_its_earlier_answer_is_not_taken_instead() -> None:
    # Hazard D15: nobody falls back to an earlier round unasked.
    def fails_at_the_end(request: ChatRequest) -> Completion:
        return Completion.failure("out of memory") if request.id.endswith(".1") else scripted(request)

    decision = debated(fails_at_the_end, agents=3, rounds=2).decision
    assert decision.answer.missing
    assert (decision.eligible, decision.received) == (3, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"agents": 0}, "protocol.agents must be at least 1, got 0"),
        ({"rounds": 0}, "protocol.rounds must be at least 1 (round 0 is the independent answers), got 0"),
        ({"topology": "stars"}, "protocol.topology must be one of: full, ring, star"),
        ({"topology": "full:2"}, "protocol.topology must be one of: full, ring, star"),
        ({"topology": "nearest:3"}, "the number of neighbours must be a whole number from 1 to 2"),
        ({"topology": "nearest:few"}, "the number of neighbours must be a whole number from 1 to 2"),
        ({"topology": "random:1.2"}, "the density must be between 0 and 1, such as random:0.4"),
        ({"topology": "random:half"}, "the density must be between 0 and 1, such as random:0.4"),
        ({"topology": "graph"}, "need each other; the graph may be the path of a YAML file"),
        ({"graph": {"1": [2]}}, "need each other; the graph may be the path of a YAML file"),
        ({"topology": "graph", "graph": {}}, "protocol.graph says of no agent whom it hears"),
        ({"topology": "graph", "graph": {"1": []}}, "protocol.graph says of no agent whom it hears"),
        ({"topology": "graph", "graph": {"1": [4]}}, "protocol.graph names agent 4; the agents are 1 to 3"),
        ({"topology": "graph", "graph": {"0": [1]}}, "protocol.graph names agent '0'; the agents are 1 to 3"),
        ({"topology": "graph", "graph": {"Ada": [1]}}, "protocol.graph names agent 'Ada'; the agents are 1 to 3"),
        ({"topology": "graph", "graph": {"1": 2}}, "agent 1: expected a list of the agents it hears, got 2"),
        ({"topology": "graph", "graph": {"1": [1]}}, "agent 1 cannot hear itself"),
        ({"peer_tokens": 31}, "protocol.peer_tokens=31 leaves too little of a reply: give at least 32"),
        ({"stop": "threshold"}, "stop=threshold needs the share of agents that must agree"),
        ({"stop": "consensus", "threshold": 0.5}, "and the other stops take none"),
        ({"stop": "threshold", "threshold": 1.5}, "protocol.threshold must be above 0 and at most 1, got 1.5"),
        ({"summary_from": 5, "peers": "answers"}, "summary_from turns peers=full into summaries"),
        ({"show_confidence": True}, "show_confidence needs confidences that are asked for"),
        (
            {"show_confidence": True, "confidence": "verbal", "peers": "none"},
            "protocol.show_confidence has nobody to show",
        ),
        ({"odd_one_out": 4}, "protocol.odd_one_out must be an agent from 1 to 3, or null for nobody; got 4"),
        ({"odd_one_out": 1, "agents": 1}, "protocol.odd_one_out needs at least one other agent"),
        ({"odd_one_out": 1, "noise": True}, "nobody would hear protocol.odd_one_out"),
        ({"evidence_parts": 2}, "protocol.evidence_parts=2 deals out evidence, but none is shown"),
        ({"evidence": "all", "evidence_parts": -1}, "protocol.evidence_parts must be at least 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    assert says in refusal(debate, **options)


class Essays(Known):
    """A task whose answers are whole texts."""

    name = "essays"
    votable = False


@pytest.mark.parametrize(
    ("setting", "options", "says"),
    [
        (
            setting_for(debate, (Agent(),) * 4),
            {},
            "the cast has 4 members and the debate 3 agents: some would never speak",
        ),
        (setting_for(debate, task=Essays()), {"peers": "answers"}, "the answers of task 'essays' are whole texts"),
        (setting_for(debate), {"peer_names": "named"}, "needs a name of its own for each agent, got '', '', ''"),
        (setting_for(debate, (Agent(name="Ada"),)), {"peer_names": "named"}, "got 'Ada', 'Ada', 'Ada'"),
        (setting_for(debate, task=Sums()), {"evidence": "all"}, "no item of task 'sums' has such evidence"),
        (setting_for(debate, task=Known(1)), {"noise": True}, "task 'sums' has one item only"),
        (setting_for(debate, task=Known(1)), {"odd_one_out": 1}, "task 'sums' has one item only"),
    ],
)
def test_options_that_do_not_suit_the_task_or_the_cast_are_refused(
    setting: Any, options: dict[str, Any], says: str
) -> None:
    assert says in refusal(debate, setting, **options)


def test_options_that_can_be_are_accepted() -> None:
    assert refusal(debate) == ""
    assert (
        refusal(
            debate, setting_for(debate, (Agent(name="Ada"), Agent(name="Ben"), Agent(name="Cem"))), peer_names="named"
        )
        == ""
    )
    assert (
        refusal(debate, topology="nearest:2", stop="threshold", threshold=0.5, evidence="wrong", evidence_parts=0) == ""
    )
    assert refusal(debate, agents=1, topology="ring") == ""


@pytest.mark.parametrize(
    ("topology", "round_1"),
    [
        ("full", [{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}]),
        ("ring", [{1, 3}, {0, 2}, {1, 3}, {0, 2}]),
        ("nearest:2", [{1, 3}, {0, 2}, {1, 3}, {0, 2}]),
        ("nearest:1", [{1}, {2}, {3}, {0}]),
        ("nearest:3", [{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}]),
        ("star", [{1, 2, 3}, {0}, {0}, {0}]),
        ("none", [set(), set(), set(), set()]),
        ("random:0", [set(), set(), set(), set()]),
        ("random:1", [{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}]),
    ],
)
def test_each_topology_says_who_hears_whom(topology: str, round_1: list[set[int]]) -> None:
    assert heard_by(debated(agents=4, topology=topology), 1) == round_1


def test_a_random_graph_has_its_share_of_pairs_and_is_another_for_each_item_and_seed() -> None:
    def graph(seed: int, item: int) -> tuple[frozenset[int], ...]:
        setting = setting_for(debate, seed=seed, task=Known(40))
        options = {"agents": 6, "topology": "random:0.4"}
        asked = debate(setting.task.items()[item], setting, **options)
        done = ask_in_turn(asked, lambda requests: [Completion(f"Answer: {request.id[0]}") for request in requests])
        return tuple(frozenset(heard) for heard in heard_by(done, 1))

    graphs = [graph(seed, item) for seed in range(3) for item in range(10)]
    for one in graphs:
        # 0.4 of 15 pairs, and hearing is mutual.
        assert sum(len(heard) for heard in one) == 2 * 6
        assert all(agent in one[other] for agent, heard in enumerate(one) for other in heard)
    assert len(set(graphs)) > 20
    assert graphs == [graph(seed, item) for seed in range(3) for item in range(10)]


def test_a_ring_of_two_and_of_one_is_what_can_be_of_it() -> None:
    assert heard_by(debated(agents=2, topology="ring"), 1) == [{1}, {0}]
    assert heard_by(debated(agents=1, topology="ring"), 1) == [set()]


@pytest.mark.hazard("D17")
def test_in_a_simultaneous_round_order_of_agents_does_not_matter_and_in_a_sequential_one_it_does() -> None:
    at_once = debated(agents=3, rounds=2).turns
    assert all(round == 0 for turn in at_once if turn.round == 1 for _, round in turn.heard)
    in_turn = debated(agents=3, rounds=3, order="sequential").turns
    heard = {(turn.round, turn.agent): turn.heard for turn in in_turn}
    assert heard[1, 0] == ((1, 0), (2, 0))
    assert heard[1, 1] == ((0, 1), (2, 0))
    assert heard[1, 2] == ((0, 1), (1, 1))
    assert heard[2, 1] == ((0, 2), (2, 1))


def test_summaries_are_made_for_each_reader_and_count_as_calls() -> None:
    done = debated(agents=3, rounds=2, peers="summary")
    summaries = [turn for turn in done.turns if turn.role == "summariser"]
    assert [(turn.agent, turn.round, turn.step, turn.heard) for turn in summaries] == [
        (0, 1, "summary", ((1, 0), (2, 0))),
        (1, 1, "summary", ((0, 0), (2, 0))),
        (2, 1, "summary", ((0, 0), (1, 0))),
    ]
    assert all(turn.answer.missing for turn in summaries)


@pytest.mark.hazard("D20")
@pytest.mark.parametrize("summary", ["They reason about sums.", "", "x"])
def test_answers_travel_beside_a_summary_whatever_it_holds(summary: str) -> None:
    def answer(request: ChatRequest) -> Completion:
        if request.id.endswith(".summary"):
            return Completion.failure("out of memory") if summary == "x" else Completion(summary)
        return scripted(request)

    done = debated(answer, agents=3, rounds=2, peers="summary")
    prompt = last_prompt(next(turn for turn in done.turns if turn.round == 1 and not turn.step))
    assert "Answer of agent 2: 2\nAnswer of agent 3: 3" in prompt
    assert said(1, 0) not in prompt
    assert ("(There is no summary.)" in prompt) == (summary != "They reason about sums.")


def test_a_summary_has_the_readers_model_without_its_persona_unless_a_summariser_is_given() -> None:
    cast = (Agent(model="a", persona="You are a hawk."), Agent(model="b"))
    done = debated(agents=2, cast=cast, peers="summary")
    made = [turn.request for turn in done.turns if turn.step]
    assert [request.model for request in made] == ["a", "b"]
    assert [[message.role for message in request.messages] for request in made] == [["user"], ["user"]]
    setting = replace(setting_for(debate, cast), summariser=Agent(model="c"))
    debate_c = debate(setting.task.items()[0], setting, agents=2, peers="summary")
    other = ask_in_turn(debate_c, lambda requests: [scripted(request) for request in requests])
    assert [turn.request.model for turn in other.turns if turn.step] == ["c", "c"]


@pytest.mark.parametrize(("agents", "summaries"), [(3, 0), (4, 0), (5, 5)])
def test_summary_from_switches_at_a_number_of_agents_and_never_by_default(agents: int, summaries: int) -> None:
    switched = debated(agents=agents, rounds=2, summary_from=5)
    assert sum(turn.step == "summary" for turn in switched.turns) == summaries
    assert not any(turn.step for turn in debated(agents=agents, rounds=2).turns)


def test_peers_answers_shows_no_reasoning_and_says_who_has_no_answer() -> None:
    done = debated(says("1-3", "333"), peers="answers")
    prompt = last_prompt(done.turns[3])
    assert "Answer of agent 2: no answer\nAnswer of agent 3: 3" in prompt
    assert "agent 1 in round 0." not in prompt


@pytest.mark.hazard("D01")
def test_a_budget_cuts_the_middle_of_each_reply_marks_it_and_keeps_the_end() -> None:
    def long_winded(request: ChatRequest) -> Completion:
        text = "I begin. " + "And I go on and on. " * 200 + "Answer: 3"
        return Completion(text, generated_tokens=len(text) // 5)

    for agents in (2, 7):
        done = debated(long_winded, agents=agents, rounds=5, peer_tokens=40, history="last")
        whole = len(long_winded(done.turns[0].request).text)
        for turn in done.turns:
            if turn.round:
                prompt = last_prompt(turn)
                assert prompt.count("characters left out ...]") == agents - 1
                assert prompt.count("I begin.") == prompt.count("Answer: 3") == agents - 1
                # 40 tokens of 5 characters, the mark and the heading, for each peer.
                assert len(prompt) < 300 + (agents - 1) * (200 + 80)
        # Who speaks keeps its own words whole.
        assert len(done.turns[-1].request.messages[1].content) == whole


def test_a_reply_within_the_budget_is_not_touched() -> None:
    assert [t.request for t in debated(peer_tokens=32).turns] == [t.request for t in debated().turns]


def test_history_last_and_fresh_keep_prompts_from_growing() -> None:
    whole, last, fresh = (debated(rounds=4, history=kind).turns for kind in ("full", "last", "fresh"))
    assert [len(turn.request.messages) for turn in whole if turn.agent == 0] == [1, 3, 5, 7]
    assert [len(turn.request.messages) for turn in last if turn.agent == 0] == [1, 3, 3, 3]
    assert [len(turn.request.messages) for turn in fresh if turn.agent == 0] == [1, 1, 1, 1]
    assert last[9].request.messages[1].content == said(0, 2)
    assert said(0, 2) not in fresh[9].request.messages[0].content


def test_who_remembers_nothing_and_hears_nobody_is_asked_anew() -> None:
    turns = debated(rounds=3, history="fresh", topology="none").turns
    assert len({turn.request.messages for turn in turns}) == 1
    assert len({turn.request.sampling.seed for turn in turns}) == 9


def test_shuffled_peers_are_in_another_order_by_seed_and_are_the_same_peers() -> None:
    def order(seed: int) -> list[list[int]]:
        turns = debated(agents=5, peer_order="shuffled", seed=seed).turns
        prompts = [last_prompt(turn) for turn in turns if turn.round]
        return [
            sorted((other for other in range(5) if said(other, 0) in prompt), key=lambda o: prompt.index(said(o, 0)))
            for prompt in prompts
        ]

    assert all(sorted(one) == [other for other in range(5) if other != agent] for agent, one in enumerate(order(0)))
    assert order(0) != order(1)
    assert order(0) == order(0)


@pytest.mark.hazard("D19")
def test_names_are_the_casts_and_nothing_else_of_it_is_told() -> None:
    cast = (Agent(name="Ada", persona="You are a hawk."), Agent(name="Ben", persona="You are a dove."))
    prompt = last_prompt(debated(agents=2, cast=cast, peer_names="named").turns[2])
    assert "Reply of Ben:\n" in prompt
    assert "dove" not in prompt
    anonymous = last_prompt(debated(agents=2, cast=cast, peer_names="anonymous").turns[2])
    assert "A reply:\n" in anonymous
    assert "Ben" not in anonymous
    assert "agent 2:" not in anonymous


def sure(request: ChatRequest) -> Completion:
    agent, round = request.id.split(".")[:2]
    return Completion(f"{said(int(agent), int(round))}\nConfidence: 0.{8 - int(agent)}")


def test_confidence_is_asked_for_in_every_round_and_kept_beside_the_answer() -> None:
    done = debated(sure, rounds=3, confidence="verbal")
    assert all("how sure you are" in last_prompt(turn) for turn in done.turns)
    assert [turn.confidence.value for turn in done.turns if turn.confidence] == ["0.8", "0.7", "0.6"] * 3
    assert not any(turn.confidence for turn in debated(sure, rounds=3).turns)
    assert [turn.answer.value for turn in done.turns] == [turn.answer.value for turn in debated(rounds=3).turns]


def test_a_confidence_that_is_not_shown_is_in_no_peers_prompt_and_one_that_is_shown_stands_once() -> None:
    hidden = debated(sure, confidence="verbal").turns
    shown = debated(sure, confidence="verbal", show_confidence=True).turns
    for agent in range(3):
        others = [f"0.{8 - other}" for other in range(3) if other != agent]
        assert not any(number in last_prompt(hidden[3 + agent]) for number in others)
        assert all(last_prompt(shown[3 + agent]).count(number) == 1 for number in others)


def test_a_confidence_within_a_line_is_withheld_without_losing_the_answer() -> None:
    done = debated(lambda request: Completion("Answer: 3. Confidence: 0.8"), confidence="verbal")
    assert "Answer: 3. Confidence: [withheld]" in last_prompt(done.turns[3])
    assert done.turns[0].answer.value == "3"


def test_an_unreadable_confidence_is_missing_and_told_as_not_stated() -> None:
    done = debated(lambda r: Completion("Answer: 3\nConfidence: high"), confidence="verbal", show_confidence=True)
    assert done.turns[0].confidence is not None
    assert done.turns[0].confidence.missing
    assert "(its confidence: not stated)" in last_prompt(done.turns[3])


@pytest.mark.hazard("D22", "D29")
@pytest.mark.parametrize(
    ("rounds", "options", "spoken_rounds", "stopped"),
    [
        (("111",), {}, 4, "rounds"),
        (("111",), {"stop": "consensus"}, 1, "consensus"),
        (("112", "111"), {"stop": "consensus"}, 2, "consensus"),
        (("112", "113"), {"stop": "consensus"}, 4, "rounds"),
        (("112", "113"), {"stop": "threshold", "threshold": 0.6}, 1, "threshold"),
        (("123", "113"), {"stop": "threshold", "threshold": 0.6667}, 2, "threshold"),
        (("112",), {"stop": "threshold", "threshold": 0.7}, 4, "rounds"),
        (("112", "111"), {"stop": "threshold", "threshold": 1.0}, 2, "consensus"),
        (("111",), {"stop": "consensus", "agents": 1}, 4, "rounds"),
        (("111",), {"stop": "consensus", "order": "sequential"}, 1, "consensus"),
    ],
)
def test_it_stops_when_it_is_told_to_and_only_then(
    rounds: tuple[str, ...], options: dict[str, Any], spoken_rounds: int, stopped: str
) -> None:
    done = debated(says(*rounds), rounds=4, **options)
    assert (done.rounds, done.stopped) == (spoken_rounds, stopped)


@pytest.mark.hazard("D18")
@pytest.mark.parametrize("first", ["11-", "-1-", "---", "11x", "xxx"])
def test_a_missing_answer_blocks_unanimity(first: str) -> None:
    done = debated(says(first, "111"), rounds=3, stop="consensus")
    assert (done.rounds, done.stopped) == (2, "consensus")


def test_who_hears_its_own_answer_only_is_skipped_and_its_last_turn_stands() -> None:
    # On a ring of five, agent 0 hears 1 and 4, agent 2 hears 1 and 3.
    done = debated(says("11223", "11111"), agents=5, rounds=3, topology="ring", skip_agreed=True)
    assert [agent for round, agent in spoken(done) if round == 1] == [0, 1, 2, 3, 4]
    assert (done.rounds, done.stopped) == (2, "agreed")
    some = debated(says("11122", "11122"), agents=5, rounds=2, topology="ring", skip_agreed=True)
    assert [agent for round, agent in spoken(some) if round == 1] == [0, 2, 3, 4]
    assert some.decision.counts == (("1", 3.0), ("2", 2.0))
    assert some.decision.received == 5
    # Who was skipped is heard as it last spoke.
    more = debated(says("11122", "11122"), agents=5, rounds=3, topology="ring", skip_agreed=True)
    assert next(turn.heard for turn in more.turns if (turn.round, turn.agent) == (2, 0)) == ((1, 0), (4, 1))


@pytest.mark.hazard("D15")
def test_when_all_agree_nobody_is_asked_again_and_a_failed_turn_is_no_agreement() -> None:
    assert debated(says("111"), rounds=4, skip_agreed=True).stopped == "agreed"
    failed = debated(says("11x", "111"), rounds=2, skip_agreed=True)
    # The two heard only each other, and agree; the one who failed is asked.
    assert [agent for round, agent in spoken(failed) if round == 1] == [2]


def test_noise_is_round_0_of_other_items_asked_as_they_ask_it_themselves() -> None:
    task = Known(6)
    setting = setting_for(debate, task=task)
    own: dict[str, list[Turn]] = {}
    for item in task.items():
        done = ask_in_turn(debate(item, setting, rounds=1), lambda requests: [marked(request) for request in requests])
        own[item.id] = list(done.turns)
    item = task.items()[0]
    noisy = ask_in_turn(debate(item, setting, noise=True), lambda requests: [marked(request) for request in requests])
    donors = [turn for turn in noisy.turns if turn.role == "donor"]
    known = {request_key(turn.request, ""): turn.completion.text for turns in own.values() for turn in turns}
    texts = {turn.agent: turn.completion.text for turn in donors}
    assert sorted(texts) == [0, 1, 2]
    assert all(known[request_key(turn.request, "")] == turn.completion.text for turn in donors)
    assert not any(text == turn.completion.text for turn in own[item.id] for text in texts.values())
    for turn in noisy.turns:
        if turn.round:
            assert turn.heard == ()
            assert all((text in last_prompt(turn)) == (agent != turn.agent) for agent, text in texts.items())
    votes = [turn for turn in noisy.turns if turn.round == 1]
    assert noisy.decision.eligible == len(votes) == 3


def test_the_odd_one_out_is_never_asked_never_gives_in_and_has_no_vote() -> None:
    done = debated(agents=3, rounds=3, odd_one_out=2)
    assert {agent for _, agent in spoken(done)} == {0, 2}
    for turn in done.turns:
        if turn.round:
            assert "Reply of agent 2:\nI have worked this out carefully" in last_prompt(turn)
            assert "The answer is 100." in last_prompt(turn)
            assert (1, turn.round - 1) in turn.heard
    assert done.decision.eligible == 2


class Choices(Sums):
    """Questions with options, of which B is right."""

    def items(self) -> list[Item]:
        return [Item(f"c{number}", f"Which? {number}", "B", choices=("x", "y", "z")) for number in range(3)]


@pytest.mark.parametrize(
    ("task", "wrong"),
    [(Known(3), "The answer is 100."), (Choices(), "The answer is C."), (Sums(2), "The answer is 6.")],
)
def test_the_odd_ones_answer_is_the_trap_the_next_option_or_another_items_target(task: Any, wrong: str) -> None:
    done = hold(debate, scripted, task=task, odd_one_out=3)
    assert wrong in last_prompt(done.turns[-1])


def test_evidence_is_shown_to_all_dealt_out_or_held_back() -> None:
    def shown(**options: Any) -> list[list[str]]:
        turns = debated(rounds=1, **options).turns
        sources = {"right": "a pocket calculator", "wrong": "a rumour", "open": "Sums of whole numbers"}
        return [[name for name, text in sources.items() if text in last_prompt(turn)] for turn in turns]

    assert shown() == [[], [], []]
    assert shown(evidence="all") == [["right", "wrong", "open"]] * 3
    assert shown(evidence="correct") == [["right"]] * 3
    assert shown(evidence="wrong") == [["wrong"]] * 3
    assert shown(evidence="mixed") == [["right", "wrong"]] * 3
    assert shown(evidence="all", evidence_parts=0) == [["right"], ["wrong"], ["open"]]
    assert shown(evidence="all", evidence_parts=2) == [["right", "open"], ["wrong"], ["right", "open"]]


def test_evidence_cot_and_confidence_stand_in_the_prompts_of_the_controls_too() -> None:
    options = {"cot": True, "confidence": "verbal", "evidence": "all", "evidence_parts": 2}
    first = [turn.request for turn in debated(rounds=1, **options).turns]
    assert [turn.request for turn in hold(single, scripted, agents=3, **options).turns] == first
    assert [turn.request for turn in hold(self_consistency, scripted, samples=3, **options).turns] == first


@pytest.mark.hazard("D24")
def test_braces_in_questions_and_replies_are_left_as_they_are() -> None:
    class Sets(Sums):
        def items(self) -> list[Item]:
            return [Item("set", "How many are in {1,2} or {{1,2}} or {% if %}?", "2")]

    def with_braces(request: ChatRequest) -> Completion:
        return Completion("I count {{ 7*7 }} in \\boxed{2} {# no #}. Answer: 2")

    done = hold(debate, with_braces, task=Sets(), restate=True)
    prompt = last_prompt(done.turns[3])
    assert "I count {{ 7*7 }} in \\boxed{2} {# no #}. Answer: 2" in prompt
    assert "The question again: How many are in {1,2} or {{1,2}} or {% if %}?" in prompt


@pytest.mark.hazard("D04")
def test_a_turns_answer_is_its_own_and_flips_are_told() -> None:
    def replies(request: ChatRequest) -> Completion:
        first = {"0.0": "Answer: 3", "1.0": "Answer: 40", "2.0": "Answer: 63"}
        return Completion(first.get(request.id, "Agent 2 says 40 and agent 3 says 63, so I now say Answer: 40"))

    done = debated(replies)
    rows = [
        {
            "agent": turn.agent,
            "role": turn.role,
            "answer_key": turn.answer.key,
            "score": float(turn.answer.key == "3"),
        }
        for turn in done.turns
    ]
    assert flips(rows) == ["", "", "", "right -> wrong", "", "wrong -> wrong"]


@pytest.mark.hazard("D05", "D06")
@pytest.mark.parametrize("reply", ["I agree with the other agents.", "Could you provide the price?"])
def test_agreement_without_a_value_and_refusals_are_no_answer(reply: str) -> None:
    def answer(request: ChatRequest) -> Completion:
        return Completion(reply) if request.id == "0.1" else says("222")(request)

    done = debated(answer)
    last = next(turn for turn in done.turns if (turn.agent, turn.round) == (0, 1))
    assert last.answer.missing
    assert last.answer.rule
    assert (done.decision.eligible, done.decision.received, done.decision.answer.value) == (3, 2, "2")


@pytest.mark.hazard("D23")
def test_twelve_rounds_are_no_more_than_two_and_temperature_0_stays_0() -> None:
    cold = (Agent(sampling=replace(Agent().sampling, temperature=0.0)),)
    done = debated(rounds=12, cast=cold)
    assert (done.rounds, len(done.turns)) == (12, 36)
    assert {turn.request.sampling.temperature for turn in done.turns} == {0.0}
