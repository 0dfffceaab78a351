"""How the speeches of others are shown to an agent: which part of them, under what names, how long, in what order."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .chat import derive_seed
from .confidence import without_confidence
from .setting import Setting
from .transcript import Answer, Item, Turn

Peers = Literal["full", "summary", "answers", "none"]
Names = Literal["numbered", "named", "anonymous"]
Order = Literal["fixed", "shuffled"]
# Of less than this nothing can be understood.
LEAST_PEER_TOKENS = 32
_CHARACTERS_A_TOKEN = 4.0


@dataclass(frozen=True, slots=True)
class Voice:
    """What others may hear of one speech.

    round: None for a speech that was not made in this debate. confidence: as it was stated. density: characters a
    token.
    """

    agent: int
    round: int | None
    text: str
    answer: Answer
    confidence: str | None = None
    density: float = _CHARACTERS_A_TOKEN

    @classmethod
    def of(cls, turn: Turn) -> "Voice":
        """A turn's: its reply only, never its speaker's set-up, its reasoning or how sure it says it is."""
        done, confidence = turn.completion, turn.confidence
        text = done.text if confidence is None else without_confidence(done.text, confidence)
        # Reasoning is among the tokens, so it is among the characters.
        raw = len(done.raw or done.text)
        density = raw / done.generated_tokens if done.generated_tokens > 0 and raw else _CHARACTERS_A_TOKEN
        return cls(turn.agent, turn.round, text, turn.answer, confidence.value if confidence else None, density)

    @property
    def speaks(self) -> bool:
        """False for a speech without text: nobody hears it."""
        return bool(self.text.strip())


@dataclass(frozen=True, slots=True)
class Showing:
    """what: whole replies (full), answers without reasoning (answers), or a summary with the answers beside it.

    names: `agent 2` (numbered), the cast's own names (named), or none (anonymous). order: by agent (fixed), or another
    for each reader and round, by seed (shuffled). tokens: at most so many of each reply, its middle left out and the
    cut marked; None: all. confidence: told beside each.
    """

    what: Peers = "full"
    names: Names = "numbered"
    order: Order = "fixed"
    tokens: int | None = None
    confidence: bool = False

    def shown(
        self, item: Item, setting: Setting, reader: int, round: int, voices: Sequence[Voice]
    ) -> list[dict[str, Any]]:
        """What templates are given of each voice: number, name, text, answer, confidence ("" for what there is not)."""
        voices = list(voices)
        if self.order == "shuffled":
            voices.sort(key=lambda v: derive_seed(setting.seed, item.id, reader, round, f"peer {v.agent}"))
        return [
            {
                "number": voice.agent + 1,
                "name": self._name(setting, voice.agent),
                "text": voice.text if self.tokens is None else shortened(voice.text, int(self.tokens * voice.density)),
                "answer": "no answer" if voice.answer.missing else voice.answer.value,
                "confidence": (voice.confidence or "not stated") if self.confidence else "",
            }
            for voice in voices
        ]

    def _name(self, setting: Setting, agent: int) -> str:
        if self.names == "anonymous":
            return ""
        own = setting.agent(agent).name if self.names == "named" else ""
        return own or f"agent {agent + 1}"


def shortened(text: str, characters: int) -> str:
    """The beginning and the end of a text that is longer than so many characters, with a mark between them."""
    if len(text) <= characters:
        return text
    begin = _last_blank(text[: characters // 2])
    end = _last_blank(text[: -(characters - characters // 2) - 1 : -1])
    left_out = len(text) - begin - end
    return f"{text[:begin].rstrip()} [... {left_out} characters left out ...] {text[len(text) - end :].lstrip()}"


def _last_blank(text: str) -> int:
    """Where the last whole word of a text ends; its whole length where it has one word only."""
    blank = re.search(r"\s\S*$", text)
    return blank.start() if blank else len(text)


def check_showing(peers: str, peer_tokens: int | None, confidence: str, show_confidence: bool) -> None:
    """Raise ValueError for what cannot be shown."""
    if peer_tokens is not None and peer_tokens < LEAST_PEER_TOKENS:
        raise ValueError(
            f"protocol.peer_tokens={peer_tokens} leaves too little of a reply: give at least {LEAST_PEER_TOKENS}, or "
            "null for whole replies"
        )
    if show_confidence and confidence == "none":
        raise ValueError("protocol.show_confidence needs confidences that are asked for: protocol.confidence=verbal")
    if show_confidence and peers == "none":
        raise ValueError("protocol.show_confidence has nobody to show: protocol.peers is none")


def check_readable(setting: Setting, peers: str) -> None:
    """Raise ValueError where answers are to be shown of a task whose answers cannot be read as such."""
    if peers == "answers" and not setting.task.votable:
        raise ValueError(
            f"protocol.peers=answers: the answers of task {setting.task.name!r} are whole texts; use peers=full or "
            "peers=summary"
        )


def check_names(setting: Setting, names: str, agents: Iterable[int]) -> None:
    """Raise ValueError where names are wanted that the cast does not have, or has twice."""
    if names != "named":
        return
    given = [setting.agent(agent).name for agent in agents]
    if not all(name.strip() for name in given) or len(set(given)) < len(given):
        raise ValueError(
            f"protocol.peer_names=named needs a name of its own for each agent, got {', '.join(map(repr, given))}: "
            "cast=[{name: Ada}, {name: Ben}, ...]"
        )
