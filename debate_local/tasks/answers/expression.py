"""Read the mathematical expression that answers a question out of a reply. Knows nothing of the task; never guesses.

The order of rules is that of `statements`: a stated answer beats position, of several the last counts, a correction
beats it, and only where nothing is stated does the last sentence speak. Boxes in one list are one answer. Ranges, two
candidates (`2 or 3`, though not `x = 2 or x = 3`), refusals and what is cut off are no answer. FORMAT asks for what the
first rule reads.

The rules in their order; `Answer.rule` names the one that matched, with what was dropped in brackets (percent, degrees,
unit):

  boxed                  \\boxed{\\frac{1}{2}}, \\boxed{2} and \\boxed{3}, \\boxed 7
  hash, tag              #### 1/2, <answer>1/2</answer>
  final answer, answer   Final answer: $x^2$, the answer is 2/3
  correction             The answer is 2/3. No, wait, it is 3/4.
  bare                   the whole reply is $\\frac{1}{2}$
  lenient: formula       Therefore $k = -4$.
  lenient: number        So there are 12 ways.
"""

import re
from itertools import islice

from debate_local.core.transcript import Answer
from debate_local.tasks.answers import algebra_pool, voice
from debate_local.tasks.answers.expression_choice import complete, concluded, is_range, stretch, together, whole
from debate_local.tasks.answers.expression_text import ExpressionText, Piece
from debate_local.tasks.answers.formula import Formula, understood
from debate_local.tasks.answers.formula_meaning import means_gold, same_meaning
from debate_local.tasks.answers.reply import nothing_in, own_part, plain
from debate_local.tasks.answers.statements import CUE, Found, Statement, box_before, last_words, settle

FORMAT = "Give the final answer as one mathematical expression inside \\boxed{} at the end of your reply."


def read_expression(text: str, question: str = "") -> Answer:
    """The expression a reply gives as its answer; waits for algebra, at most about two seconds an expression.

    question: what was asked; where the reply repeats it word for word, that part is not read. value is one plain
    spelling, without units; key is canonical: equal keys are equal answers, and equal answers have equal keys where
    that can be decided. Raises algebra_pool.AlgebraFailed when no worker process can be started.
    """
    piece, rule = _found(text, question)
    formula = understood(piece.text, algebra_pool.simplified) if piece else None
    if piece is None or formula is None:
        return Answer.none(rule if piece is None else "stated, but no expression")
    unit = f" ({formula.unit})" if formula.unit else ""
    return Answer(formula.text, formula.key, rule + unit, (piece.start, piece.end))


def prefetch(text: str, question: str = "") -> None:
    """Begin the algebra that `read_expression` will need for this reply, without waiting."""
    piece, _ = _found(text, question)
    if piece is not None:
        understood(piece.text, algebra_pool.begin)


def same_expression(a: Answer, b: Answer) -> bool:
    """True when both are answers and mean the same; asks math-verify where the keys cannot tell."""
    if a.key is None or b.key is None:
        return False
    return a.key == b.key or same_meaning(_again(a), _again(b), algebra_pool.same)


def equals_gold(answer: Answer, gold: str) -> bool:
    """Does the answer mean the gold, as a person would grade it?

    A percent or degree sign, a unit or the base of a numeral may be missing on one side; a list may be given for a
    tuple or a set. Nothing is rounded. A missing answer equals no gold.
    """
    wanted = understood(gold, algebra_pool.simplified)
    if answer.key is None or wanted is None:
        return False
    return means_gold(_again(answer), wanted, algebra_pool.simplified, algebra_pool.same)


def _again(answer: Answer) -> Formula:
    """The formula behind an answer; its algebra is known by now."""
    formula = understood(answer.value or "", algebra_pool.simplified)
    unit = next((unit for unit in ("percent", "degrees") if f"({unit})" in answer.rule), "")
    if formula is None:
        return Formula(answer.value or "", answer.key or "", decided=True)
    return Formula(formula.text, formula.key, formula.decided, formula.unit or unit)


def _found(text: str, question: str) -> tuple[Piece | None, str]:
    """The expression and the rule, or none and why not."""
    own = own_part(text, question)
    if not own:
        return None, nothing_in(text)
    reader = _Reader(ExpressionText(own), plain(question))
    found = settle(reader.reply, CUE, reader.stated, reader.lenient)
    return (found.thing, found.rule) if found else (None, "no expression")


_MOST_BOXES = 50
_MOST_SENTENCES = 12
_PLACEHOLDER = re.compile(
    r"\W*+(?:text\b)?\W*+(?:(?:your|the|final|numerical|correct|insert|put|here)\W++)*+"
    r"(?:answer|expression|result|solution|value|number)s?(?:\W++here)?\W*+|\W*+(?:[lc]?dots)?\W*+",
    re.IGNORECASE,
)
_EMPTY_SET = re.compile(r"\\\{\s*\\\}")
_TOKEN = re.compile(r"-?\d[\d,]*(?:\.\d+)?|\\frac\s*\d\d|\\[a-z]+\b|[a-zA-Z]")
_ONE_TEXT = re.compile(r"\s*\\(?:text|textbf|mathrm|mbox)\{([^{}]*)\}\s*")
_PROSE_LEAD = re.compile(r"(?:[\w\s,'$\\(){}]*\b(?:is|are|equals?)\b|[A-Za-z\s{}\\]{4,}:)[\s:}*]*", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]{2,}")
_HEADING = re.compile(r"\d{1,2}[.)]\s|step\b")
_ASIDE = re.compile(r"\W*(?:notice|recall|equality (?:occurs|holds)(?!.{0,200}\bso\b)|\((?=[^)]*\)?\W*\Z))", re.DOTALL)


class _Reader:
    """Reads the statements and the last words of one reply."""

    def __init__(self, reply: ExpressionText, question: str) -> None:
        self.reply, self._question = reply, question

    def stated(self, statement: Statement) -> Found[Piece] | None:
        """What a statement states."""
        start, end = statement.start, statement.end
        if statement.rule == "boxed":
            return self._boxed(statement)
        if self.reply.in_a_box(start) or (statement.rule == "hash" and _HEADING.match(self.reply.low, start)):
            return None
        closing = self.reply.written.find("</", start, end) if statement.rule == "tag" else -1
        return stretch(self.reply, start, closing if closing >= 0 else end, statement.rule)

    def lenient(self, start: int, corrects: bool) -> Found[Piece] | None:
        """What the last sentences that have an expression arrive at."""
        if not corrects and (found := whole(self.reply)) is not None:
            return found
        words = last_words(self.reply, start, "" if corrects else self._question, corrects)
        for word in islice(words, _MOST_SENTENCES):
            if word.refusal:
                return Found(word.refusal)
            if _ASIDE.match(self.reply.low, word.sentence.start, word.sentence.end):
                continue
            found = concluded(self.reply, word.sentence)
            if word.last and not word.sentence.mark and not complete(self.reply, word.sentence, found):
                return Found("cut off in a sentence")
            if found is not None:
                return found
        return None

    def _boxed(self, box: Statement) -> Found[Piece] | None:
        """A box, with those before it that stand in one list with it."""
        written = self.reply.written
        if not box.closed:
            return Found("cut off in a box")
        if box.bare:
            token = _TOKEN.match(written, box.start)
            return Found("boxed", Piece(*token.span(), token[0])) if token else None
        found = self._content(box.start, box.end)
        if found is None or found.thing is None:
            return found
        pieces, place = [found.thing], box.cue
        while len(pieces) < _MOST_BOXES and (before := box_before(self.reply, place)):
            earlier = self._content(*before)
            if earlier is None or earlier.thing is None:
                break
            between = written[before[1] + 1 : place]
            if re.search(r"\bor\b", between) and "=" not in between + earlier.thing.text:
                return Found("several candidates")
            pieces.insert(0, earlier.thing)
            place = written.rfind("\\", 0, before[0])
        return Found("boxed", together(pieces))

    def _content(self, start: int, end: int) -> Found[Piece] | None:
        """What a box holds. One that only shows the form (`\\boxed{answer}`) holds nothing."""
        text = self.reply.written[start:end]
        if not text.strip() and not self.reply.written[end:].strip(" \n$}*.\\])"):
            return Found("an empty box")
        if _PLACEHOLDER.fullmatch(text) and not _EMPTY_SET.search(text):
            return None
        if voice.refused(self.reply.low[start:end]):
            return Found("stated, but no answer")
        if is_range(text):
            return Found("an expression or a range")
        # \boxed{\text{The answer is } 5} and \boxed{\text{the number is even}} hold 5 and even.
        inner = _ONE_TEXT.fullmatch(text)
        said, offset = (inner[1], inner.start(1)) if inner else (text, 0)
        lead = _PROSE_LEAD.match(said)
        if lead and len(_WORD.findall(lead[0].replace("\\text", ""))) > 1 and said[lead.end() :].strip():
            begin = start + offset + lead.end()
            return Found("boxed", Piece(begin, start + offset + len(said), said[lead.end() :]))
        return Found("boxed", Piece(start, end, text))
