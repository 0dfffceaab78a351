"""What fails here fails before anything is loaded, written or paid for (law 10)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from debate_local.core.chat import ChatRequest, Completion, Engine, Message, digest
from debate_local.core.scheduler import ask_in_turn
from debate_local.core.setting import Agent
from debate_local.core.transcript import Item, Transcript

from .cells import HELPERS
from .config import Cell
from .options import OptionFault, nearest

if TYPE_CHECKING:
    from .plan import PlannedRun


def check_items(name: str, items: Sequence[Item]) -> None:
    """Ids are texts and unique, and every text can be stored."""
    seen: set[str] = set()
    for number, item in enumerate(items, 1):
        for field in ("id", "question", "target"):
            text = getattr(item, field)
            if not isinstance(text, str):
                raise OptionFault(f"task {name!r}, item {number}: its {field} must be a text, got {text!r}")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise OptionFault(f"task {name!r}, item {number}: its {field} is no valid Unicode ({error})") from error
        if item.id in seen:
            raise OptionFault(f"task {name!r} gave one item id twice: {item.id!r}")
        seen.add(item.id)


def check_cast(cell: Cell, engine: Engine) -> list[str]:
    """Notes on what the engine will not pass on. Raises OptionFault for what it cannot do."""
    limits, notes = engine.limits, []
    for who, agent in _speakers(cell):
        if agent.model not in limits.models:
            unset = f"; name one for each agent: cast=[{{model: {limits.models[0]}}}, ...]"
            raise OptionFault(
                f"{who}.model is {agent.model!r}, which engine {cell.engine.name!r} does not have."
                f"{nearest(agent.model, limits.models)} It has: {', '.join(limits.models)}"
                f"{unset if agent.model == Agent().model else ''}"
            )
        if limits.context_length is not None and agent.sampling.max_tokens >= limits.context_length:
            raise OptionFault(
                f"sampling.max_tokens={agent.sampling.max_tokens} leaves no room for a prompt: the context is "
                f"{limits.context_length} tokens. Lower sampling.max_tokens"
            )
        if agent.logprobs and not limits.logprobs:
            raise OptionFault(f"{who}.logprobs: engine {cell.engine.name!r} gives no log-probabilities")
        if agent.prefill and not limits.prefill:
            raise OptionFault(f"{who}.prefill: engine {cell.engine.name!r} cannot begin a reply with given text")
        request = ChatRequest("", agent.model, (), agent.sampling, agent.prefill, template_args=agent.template_args)
        if refusal := getattr(engine, "refusal", _nothing)(request):
            raise OptionFault(f"{who}: {refusal}")
        if unstated := getattr(engine, "unstated", _nothing)(request):
            notes.append(unstated)
    return notes


def notes_on_models(run: "PlannedRun") -> list[str]:
    """Notes on a cast of several models: a judge that is one of them, and one that speaks for most of the agents.

    Names that stand for the same weights are one model.
    """
    count = run.facts.voters(**run.cell.protocol.options) if run.facts.controls and run.facts.voters else 0
    members = [run.setting.agent(agent) for agent in range(count)]
    models = [run.engine.identities[member.model] for member in members]
    if len(set(models)) < 2:
        return []
    notes = []
    judge = run.setting.judge or members[0]
    own = _numbers(models, run.engine.identities[judge.model])
    if run.facts.judged and own:
        notes.append(
            f"the judge is model {judge.model!r}, as {own} of {count}, and not as the others: judges favour their own "
            "model's side (Liang et al. 2024). Give it a third model, judge={model: ...}, or run it with the sides "
            "swapped too"
        )
    most = max(models, key=models.count)
    if 2 * models.count(most) > count:
        name = members[models.index(most)].model
        notes.append(
            f"model {name!r} is {_numbers(models, most)} of {count}: alone it has the majority, and a vote follows it. "
            "Give each model as many agents, or decide otherwise than by vote"
        )
    return notes


def _numbers(models: Sequence[str], model: str) -> str:
    """`agent 2`, `agents 1 and 3`: those that are this model."""
    numbers = [str(place) for place, one in enumerate(models, start=1) if one == model]
    return f"agent{'s' if len(numbers) > 1 else ''} {' and '.join(numbers)}" if numbers else ""


def _speakers(cell: Cell) -> list[tuple[str, Agent]]:
    """All agents of a cell, its helpers too, as a person names them."""
    helpers = [(name, getattr(cell, name)) for name in HELPERS]
    members = [(f"cast[{index}]", agent) for index, agent in enumerate(cell.cast)]
    return [*members, *((name, agent) for name, agent in helpers if agent is not None)]


def _nothing(request: ChatRequest) -> None:
    """What an engine says beforehand that does not say anything."""


def check_lengths(runs: Sequence["PlannedRun"]) -> list[str]:
    """Notes on first prompts that do not fit the context: the longest item of each task, counted by the engine."""
    notes = []
    for run in _first_of_each_shape(runs):
        context = run.engine.engine.limits.context_length
        if context is None:
            continue
        asked = [(len(text), item.id, text) for item in run.task.items if (text := run.task.task.ask(item))]
        _, item_id, longest = max(asked)
        persona = max((agent.persona for agent in run.cell.cast), key=len)
        system = [Message("system", persona)] if persona else []
        tokens = run.engine.engine.count_tokens([*system, Message("user", longest)])
        room = context - max(agent.sampling.max_tokens for agent in run.cell.cast)
        if tokens > room:
            notes.append(
                f"item {item_id} of task {run.cell.task.name!r} takes {tokens} tokens; with the reply's max_tokens the "
                f"context of {context} leaves {room}: its replies will be cut short, or it will be too long"
            )
    return notes


def _first_of_each_shape(runs: Sequence["PlannedRun"]) -> list["PlannedRun"]:
    """One run for each task, engine, length of reply and set of personas: the others need the same room."""
    shape = {
        (run.task.rows, run.engine.group, tuple((a.sampling.max_tokens, a.persona) for a in run.cell.cast)): run
        for run in reversed(runs)
    }
    return list(shape.values())


def rehearse(runs: Sequence["PlannedRun"]) -> None:
    """Play the first item of each kind of run with a placeholder for every reply, so that a fault shows before round 0.

    Raises OptionFault for a debate that does not get to its end.
    """
    played: set[str] = set()
    for run in runs:
        kind = digest(
            [
                run.cell.protocol.name,
                dict(run.cell.protocol.options),
                run.cell.decision,
                run.setting.templates,
                run.task.rows,
                run.engine.group,
            ]
        )
        if kind in played:
            continue
        played.add(kind)
        item = run.task.items[0]
        try:
            transcript = ask_in_turn(run.debate(item), _placeholders_of(run))
        except OptionFault:
            raise
        except Exception as error:
            raise OptionFault(
                f"{run.label}: rehearsed with placeholders for replies, its debate on item {item.id} fails: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(transcript, Transcript):
            raise OptionFault(f"{run.label}: its debate returns {type(transcript).__name__}, not a Transcript")


def _placeholders_of(run: "PlannedRun") -> Callable[[list[ChatRequest]], list[Completion]]:
    """What answers a rehearsal. Raises OptionFault for a request that the run's engine would refuse."""

    def answer(requests: list[ChatRequest]) -> list[Completion]:
        if any(request.schema is not None for request in requests) and not run.engine.engine.limits.schema:
            raise OptionFault(
                f"{run.label}: engine {run.cell.engine.name!r} cannot hold replies to a JSON schema; use engine=vllm "
                "or engine=openai, or ask without one (protocol.schema=false)"
            )
        return [Completion("(a reply)", generated_tokens=1) for _ in requests]

    return answer
