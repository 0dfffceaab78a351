"""CIAR: counter-intuitive arithmetic, where a wrong answer tempts; 50 of its 200 questions are released.

A row (of our own making, in the original columns, one of which has a blank in its name):
  {"question": "A pen and a cap cost 11, the pen costs 10 more than the cap. What does the cap cost?",
   "answer": ["0.5", "1/2"], "explanation": "...", "incorrect answer": ["1"], "incorrect explanation": "..."}

Source: Liang et al. 2024 (arXiv 2305.19118), Skytliang/Multi-Agents-Debate on GitHub
(data/CounterintuitiveQA/CIAR.json), GPL-3.0: not shipped with us.

Golds are lists of one value in mixed forms: `75%`, `3/4`, `0.75`; one is a ratio, one a pair (`6 or 12`), one holds
`1/e`. Any of them is right. Many are rounded: an answer is right that differs from a decimal or percentage by at most
half of its last digit, from one of three digits or more by a whole one; fractions, whole numbers and decimals that
equal a fraction of the same list are exact. A share may be given in percent without the sign. The trap is the tempting
wrong answer: the share of answers that are the trap, by round, is the trap rate. Four golds are suspect, see SUSPECT.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from debate_local.core.task import Task
from debate_local.core.transcript import Answer, Item
from debate_local.tasks.answers import expression, number
from debate_local.tasks.answers.numerals import canonical, exact_number
from debate_local.tasks.answers.reply import nothing_in, own_part
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

FORMAT = "Give the final answer alone inside \\boxed{} at the end of your reply."
ORIGIN = Origin(
    task="ciar",
    title="CIAR (CounterintuitiveQA)",
    repository="Skytliang/Multi-Agents-Debate",
    licence="GPL-3.0",
    layouts=(("question", "answer", "incorrect answer"),),
    sizes={"all": 50},
    papers=("2305.19118",),
    download=(
        "Download data/CounterintuitiveQA/CIAR.json from the GitHub repository Skytliang/Multi-Agents-Debate, keep it "
        "anywhere, and set task.path to it."
    ),
)
# By item id; worked out by hand.
SUSPECT = {
    "15fa609eeafc": "lists 0.6875 beside 68.57%; 24/35 is the latter only",
    "2aa7f05e336b": "27/32 needs a die of seven faces; what it says gives 55/64, its trap",
    "ded3aa362496": "the greatest chance is 74/99, not 3/4",
    "cb7a806ba4ae": "63.15% is cut off; rounded it is 63.16%",
}


def ciar(path: str | None = None) -> Task:
    """Load CIAR, in the order of its file.

    path: a local .json, .jsonl or .parquet file in the original columns; it is on no hub that we know. Raises
    TaskDataError.
    """
    loaded = load(ORIGIN, path, "all", None)
    ids = item_ids(loaded.rows, ("question",))
    drafts = [_draft(id, row) for id, row in zip(ids, loaded.rows, strict=True)]
    return build(ORIGIN, loaded, drafts, CiarReader(), PROMPT)


def _draft(id: str, row: Row) -> Draft:
    golds, traps = _listed(row["answer"]), _listed(row["incorrect answer"])
    return Draft(
        id,
        text(row["question"]),
        golds[0] if golds else "",
        also=golds[1:],
        trap=traps,
        suspect=SUSPECT.get(id, ""),
        explanation=text(row.get("explanation")),
    )


def _listed(golds: object) -> tuple[str, ...]:
    return tuple(text(gold).strip() for gold in golds) if isinstance(golds, list) else (text(golds).strip(),)


_PAIR = re.compile(r"(?P<one>\d+(?:\.\d+)?)[^\d\n]{0,30}?\b(?:or|and)\b[^\d\n]{0,30}?(?P<other>\d+(?:\.\d+)?)")
_RATIO = re.compile(r"(?<![\d.:])(?P<one>\d+)\s*(?::|to|\\colon)\s*(?P<other>\d+)(?![\d.:]*\d)")
_CONSTANT = re.compile(r"\s*/\s*[a-z]")


@dataclass(frozen=True, slots=True)
class CiarReader:
    """A number, share, ratio or pair: of which form, the item's gold says. Keys of shares in percent are parts of 1."""

    format: str = FORMAT

    def read(self, text: str, item: Item) -> Answer:
        """A pair or a ratio where the gold is one; else a number, and an expression such as 1/e where there is none."""
        for pattern, rule in ((_PAIR, "pair"), (_RATIO, "ratio")):
            if _two(pattern, item.target) is not None:
                return _last_two(pattern, rule, text, item.question)
        answer = number.read_number(text, item.question)
        if answer.key is None or (answer.span and _CONSTANT.match(text, answer.span[1])):
            return expression.read_expression(text, item.question)
        if "(percent)" not in answer.rule:
            return answer
        return Answer(f"{answer.value}%", canonical(Fraction(answer.key) / 100), answer.rule, answer.span)

    def stated(self, gold: str, item: Item) -> str:
        """In a box."""
        return f"\\boxed{{{gold}}}"

    def same(self, a: Answer, b: Answer) -> bool:
        """Exactly the same value."""
        return not a.missing and a.key == b.key

    def gold(self, text: str, item: Item) -> str | None:
        """As it is written: the digits say how far it is rounded."""
        known = _Gold.of(text) is not None or _two(_PAIR, text) or _two(_RATIO, text) or _is_constant(text)
        return text if known else None

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """See the rule at the top of this file."""
        for pattern in (_PAIR, _RATIO):
            if two := _two(pattern, gold):
                return answer.key == two
        parsed, value = _Gold.of(gold), _value(answer.key)
        if parsed is None or value is None:
            return expression.equals_gold(answer, gold)
        exact = {one.value for other in (item.target, *item.also) if (one := _Gold.of(other)) and not one.rounded}
        return parsed.allows(value, Fraction(0) if parsed.value in exact else parsed.slack)

    def values(self, item: Item) -> int | None:
        """There is no end to numbers."""
        return None


@dataclass(frozen=True, slots=True)
class _Gold:
    """One written form of a gold. value: a share as a part of 1. slack: how far from it an answer may lie."""

    value: Fraction
    percent: bool
    rounded: bool
    slack: Fraction

    @classmethod
    def of(cls, written: str) -> "_Gold | None":
        """None for what is no number."""
        digits = written.removesuffix("%").strip()
        value = exact_number(digits)
        if value is None:
            return None
        percent = written.endswith("%")
        scale = 100 if percent else 1
        rounded = "/" not in digits and (percent or "." in digits)
        unit = Fraction(1, 10 ** len(digits.partition(".")[2])) / scale
        significant = len(digits.replace(".", "").lstrip("0"))
        slack = Fraction(0) if not rounded or significant < 2 else unit if significant >= 3 else unit / 2
        return cls(value / scale, percent, rounded, slack)

    def allows(self, value: Fraction, slack: Fraction) -> bool:
        """Is this value within the slack, given as a part of 1 or, of a percentage, without its sign?"""
        near = abs(value - self.value) <= slack
        return near or (self.percent and abs(value / 100 - self.value) <= slack)


def _value(key: str | None) -> Fraction | None:
    return exact_number(key) if key else None


def _is_constant(written: str) -> bool:
    return re.fullmatch(r"1/[a-z]|[a-z]", written.strip()) is not None


def _two(pattern: re.Pattern[str], written: str) -> str | None:
    """A pair in order, or a ratio in lowest terms: the key of an answer of that form; None for another."""
    found = pattern.fullmatch(written.strip())
    return _key(pattern, found) if found else None


def _key(pattern: re.Pattern[str], found: re.Match[str]) -> str:
    one, other = Fraction(found["one"]), Fraction(found["other"])
    if pattern is _PAIR:
        low, high = sorted((one, other))
        return f"{canonical(low)} or {canonical(high)}"
    if not other:
        return f"{canonical(one)}:0"
    share = one / other
    return f"{share.numerator}:{share.denominator}"


def _last_two(pattern: re.Pattern[str], rule: str, text: str, question: str) -> Answer:
    """The last pair or ratio of the reply; where there is none, its number."""
    own = own_part(text, question)
    if not own:
        return Answer.none(nothing_in(text))
    found = list(pattern.finditer(own))
    if not found:
        return number.read_number(text, question)
    key = _key(pattern, found[-1])
    return Answer(key, key, rule, found[-1].span())


PROMPT = """\
Solve this problem. Explain your reasoning step by step.

{question}

{answer_format}"""
