"""A judge's verdict: the sentences that ask for it in JSON, and what reads them. Knows no task and no debate.

A verdict decides when it gives an answer and nothing in it speaks against that. No decision, each an outcome of its
own: no readable field, no answer, no preference although an answer is given, both sides or none, a side that is not
there, several answers. Nothing is guessed; a name counts as a whole word only: `con` is not in `concrete`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .fields import RULES, read_fields

PREFERENCE, SIDE, REASON, ANSWER = "Whether there is a preference", "Supported Side", "Reason", "debate_answer"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said.

    side: the one it supports, as it is named in the debate; "" when it names none. answer: its text; "" when there is
    no decision. rule: how the fields were read (see `fields.py`); of a reply that cannot be read, why. undecided: why
    there is no decision; "" when there is one.
    """

    side: str
    answer: str
    reason: str
    rule: str
    undecided: str = ""

    @property
    def readable(self) -> bool:
        """Had the reply the fields that were asked for? Without an answer it must say that there is no preference."""
        return self.rule in RULES and self.undecided != _NO_ANSWER

    def without(self, why: str) -> "Verdict":
        """The same, no decision after all."""
        return replace(self, answer="", undecided=why)


_NO_ANSWER = "no answer is given"


def ask_preference(sides: Sequence[str]) -> str:
    """The sentence that asks whether a side is right, and for its answer."""
    either = " or ".join(f'"{side.capitalize()}"' for side in sides)
    return (
        f'Reply with a JSON object and nothing else. Its keys: "{PREFERENCE}" ("Yes" or "No"), "{SIDE}" ('
        f'{either}; "" without a preference), "{REASON}" and "{ANSWER}" (the final answer alone; "" without a '
        "preference)."
    )


ASK_ANSWER = f'Reply with a JSON object and nothing else. Its keys: "{REASON}" and "{ANSWER}" (the final answer alone).'


def schema_of(sides: Sequence[str] = ()) -> Mapping[str, Any]:
    """The JSON schema of a verdict; without sides that of `ASK_ANSWER`."""
    values: dict[str, Any] = {}
    if sides:
        values[PREFERENCE] = {"type": "string", "enum": ["Yes", "No"]}
        values[SIDE] = {"type": "string", "enum": [*(side.capitalize() for side in sides), ""]}
    values |= {REASON: {"type": "string"}, ANSWER: {"type": "string"}}
    return {"type": "object", "properties": values, "required": list(values), "additionalProperties": False}


def read_verdict(text: str, sides: Sequence[str] = ()) -> Verdict:
    """The verdict of a reply.

    sides: those that there are, in the order of the debate; a number from 1 names one, too. Without any it is not known
    which there are, and whatever is named is one.
    """
    given = read_fields(text, (PREFERENCE, SIDE, ANSWER))
    preference, named, answer = (given.values.get(name) for name in (PREFERENCE, SIDE, ANSWER))
    side = _side(named, sides) if named is not None else ""
    # Apart from the others: an object that holds a reason and nothing else is not where they stand.
    reason = str(read_fields(text, (REASON,)).values.get(REASON, ""))
    verdict = Verdict(side or "", "", reason, given.rule)
    if given.rule not in RULES:
        return verdict.without(given.rule)
    if preference is False or _NO.fullmatch(str(preference or "")):
        return verdict.without("no preference")
    if answer is None:
        return verdict.without(_NO_ANSWER)
    if side is None:
        return verdict.without("not one side")
    written, why = _answer(answer)
    return replace(verdict, answer=written, undecided=why)


_NO = re.compile(r"\W*(?:no|none|false|no preference|neither)\W*", re.IGNORECASE)
_NO_SIDE = re.compile(
    r"\W*(?:both(?: sides)?|neither(?: side)?|none|equal(?:ly)?|tie|draw|undecided|unclear"
    r"|affirmative\W+(?:and|&|/|or)?\W*negative|negative\W+(?:and|&|/|or)?\W*affirmative)\W*",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"\W*(?:(?:text|textbf|mathrm|mathbf|boxed)\W+)?(?:(?:the )?answer is )?"
    r"(?:none|null|n/?a|unknown|undecided|undetermined|unclear|no (?:answer|decision|preference)|neither|both|either"
    r"|tbd"
    r"|(?:i\s+)?(?:cannot|can not|can't|could not|am unable to) (?:decide|determine|say|tell|choose).*"
    r"|not (?:sure|decided|available|applicable)|pending|tie|draw)?\W*",
    re.IGNORECASE | re.DOTALL,
)


def _answer(given: Any) -> tuple[str, str]:
    """The answer of a field as a text, or "" and why there is none."""
    if isinstance(given, bool):
        return str(given).lower(), ""
    if isinstance(given, dict):
        return "", "an object"
    if isinstance(given, list):
        texts = {_answer(element)[0] for element in given[:20]}
        return (texts.pop(), "") if len(texts) == 1 and texts != {""} else ("", "several values")
    text = str(given).strip()
    return ("", "empty") if _NOTHING.fullmatch(text) else (text, "")


def _side(given: Any, sides: Sequence[str]) -> str | None:
    """The side of a field; "" for one that says nothing where no side is known, None where it is not one side."""
    text = str(given).strip()
    if not sides:
        return None if _NO_SIDE.fullmatch(text) else text
    if number := re.fullmatch(r"(?:side|debater)?\s*#?(\d+)", text.casefold()):
        place = int(number[1])
        return sides[place - 1] if 1 <= place <= len(sides) else None
    return None if isinstance(given, bool | dict | list) else named_side(text, sides)


def named_side(text: str, sides: Sequence[str]) -> str | None:
    """The one side that a text says has won, or the only one that it names; None where it is not one.

    `I support con; the case of pro is weak` is con. Of several in one stretch it is the one next to the word for
    winning: `con wins against pro`. A side that is denied (`not pro`) is not named.
    """
    low = text.casefold()
    for stretch in reversed([*_STRETCH.finditer(low)][-40:]):
        if stretch["mark"] != "?" and (wins := _WINS.search(stretch["said"])):
            return _one_of(stretch["said"], sides, wins.start())
    return _one_of(low, sides, None)


_STRETCH = re.compile(r"(?P<said>[^.;!?\n]*[^.;!?\s][^.;!?\n]*)(?P<mark>[.;!?\n]|\Z)")
_WINS = re.compile(
    r"\b(?:wins?|won|winner|prevails?|is (?:right|correct|better|stronger|more \w+)|support(?:s|ed|ing)?"
    r"|favou?r(?:s|ed)?|agree(?:s)? with|side(?:s|d)? with|verdict|preference|convinc\w+|persua\w+)\b"
)
_BEFORE_WINNING = re.compile(r"[\s*:]*(?:(?:side|the|is|clearly|has|by)\s+)*")
_DENIED = re.compile(r"(?:\bnot|n't(?:\s+be)?|rather than|instead of|cannot be)\s+(?:\w+\s+)?\Z")


def _one_of(low: str, sides: Sequence[str], wins: int | None) -> str | None:
    found = [
        (side, place.end())
        for side in sides
        for place in re.finditer(rf"(?<!\w){re.escape(side.casefold())}(?!\w)", low)
        if not _DENIED.search(low, max(0, place.start() - 24), place.start())
    ]
    if len({side for side, _ in found}) > 1:
        found = [] if wins is None else [one for one in found if _BEFORE_WINNING.fullmatch(low[one[1] : wins])]
    named = {side for side, _ in found}
    return named.pop() if len(named) == 1 else None
