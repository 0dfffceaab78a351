"""Read an answer of words out of a reply: one of a few (true, valid), a list in order, or closing brackets.

For what is neither a number nor an option. The order of rules is that of `statements`; a list or brackets must be
stated, and are never put together from prose. Knows nothing of the task, and never guesses.

The rules, named by `Answer.rule`: those of `statements.Statement` (boxed, answer, ...), correction, and for one of a
few words `lenient: last sentence`; for brackets `answer line`, `boxed` and `last line`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from debate_local.core.transcript import Answer
from debate_local.tasks.answers import voice
from debate_local.tasks.answers.reply import OwnText, nothing_in, own_part, plain
from debate_local.tasks.answers.statements import CUE, Found, Statement, last_words, settle

FORMAT = "Give the final answer alone inside \\boxed{} at the end of your reply."
BRACKETS_FORMAT = "End your reply with a line that holds `Answer:` and the missing closing brackets, nothing else."


class _Words(NamedTuple):
    start: int
    end: int
    key: str


def read_words(text: str, question: str = "", vocabulary: Sequence[str] = ()) -> Answer:
    """The words that a reply gives as its answer. value and key are in lower case, one blank between two.

    question: what was asked; where the reply repeats it word for word, that part is not read. vocabulary: the answers
    that can be; empty: any words, which must be stated.
    """
    own = own_part(text, question)
    if not own:
        return Answer.none(nothing_in(text))
    reader = _OneOf(OwnText(own), vocabulary, plain(question)) if vocabulary else _AnyWords(OwnText(own))
    found = settle(reader.reply, CUE, reader.stated, reader.lenient)
    if found is None or found.thing is None:
        return Answer.none(found.rule if found else "no answer is stated")
    return Answer(found.thing.key, found.thing.key, found.rule, (found.thing.start, found.thing.end))


_APART = re.compile(r"[\s,;]+")
_MARKUP = re.compile(r"\\text(?:bf|tt|rm)?|\\[,;:! ]|[{}$*_`\"]|<[^>]*>?")


def words_key(text: str) -> str:
    """Words as they are compared: lower case, one blank between two, no commas, quotes or markup."""
    words = (word.strip("'().:") for word in _APART.split(_MARKUP.sub(" ", text.casefold())))
    return " ".join(word for word in words if word)


class _AnyWords:
    """Words that are stated; nothing is read from prose."""

    def __init__(self, reply: OwnText) -> None:
        self.reply = reply

    def stated(self, statement: Statement) -> Found[_Words] | None:
        """All words of the stretch."""
        if not statement.closed:
            return Found("cut off in a box")
        key = words_key(self.reply.text[statement.start : statement.end])
        return Found(statement.rule, _Words(statement.start, statement.end, key)) if key else None

    def lenient(self, start: int, corrects: bool) -> Found[_Words] | None:
        """Nothing."""
        return None


_LEADS_TO = re.compile(r"(?:=|:|\b(?:is|are|be|to|as|gives|yields|so|therefore|thus))[\s*_\"'`$]*\Z")


class _OneOf:
    """One of a few words."""

    def __init__(self, reply: OwnText, vocabulary: Sequence[str], question: str) -> None:
        self.reply, self._question = reply, question
        self._keys = {words_key(word) for word in vocabulary}
        longest_first = sorted(self._keys, key=len, reverse=True)
        self._any = re.compile(r"(?<![\w-])(?:" + "|".join(map(re.escape, longest_first)) + r")(?![\w-])")

    def stated(self, statement: Statement) -> Found[_Words] | None:
        """The first of the words in the stretch: what follows it is a reason."""
        if not statement.closed:
            return Found("cut off in a box")
        words = self._found(statement.start, statement.end)
        if not words:
            return None
        if len(words) > 1 and words[0].key != words[1].key and self._joined(words[0], words[1]):
            return Found("several candidates")
        return Found(statement.rule, words[0])

    def lenient(self, start: int, corrects: bool) -> Found[_Words] | None:
        """The word of the last sentence that has one; of several the last, when a verb leads to it."""
        for last in last_words(self.reply, start, self._question, corrects):
            if last.refusal:
                return Found(last.refusal)
            words = self._found(last.sentence.start, last.sentence.end)
            if not words:
                continue
            if len({word.key for word in words}) > 1 and not self._arrived_at(words, last.sentence.start):
                return Found("several candidates")
            return Found("lenient: last sentence", words[-1])
        return None

    def _found(self, start: int, end: int) -> list[_Words]:
        """The words in low[start:end]; of two that can be, a denied one means the other."""
        words = []
        for match in self._any.finditer(self.reply.low, start, end):
            key = match.group()
            if voice.denied(self.reply.low, start, match.start(), match.end()):
                others = self._keys - {key}
                if len(others) != 1:
                    continue
                (key,) = others
            words.append(_Words(match.start(), match.end(), key))
        return words

    def _arrived_at(self, words: Sequence[_Words], start: int) -> bool:
        """Does a verb lead to the last of the words, and no `or` join it to the one before?"""
        before = self.reply.low[start : words[-1].start]
        return _LEADS_TO.search(before) is not None and not self._joined(words[-2], words[-1])

    def _joined(self, one: _Words, other: _Words) -> bool:
        return re.fullmatch(r"\W*(?:or|and|/)\W*", self.reply.low[one.end : other.start]) is not None


_BRACKET_LINE = re.compile(r"(?i)\banswer\b(?: is)?[\s*:`\"'$]*(?P<brackets>[()\[\]{}<>][^\n]*)")
_BOX_LINE = re.compile(r"\\boxed\{(?P<brackets>[^\n]*)\}")
_ONLY_BRACKETS = re.compile(r"[\s*`\"'$.,\\]*(?:[()\[\]{}<>][\s*`\"'$.,\\]*)+")


def read_brackets(text: str, opened: str) -> Answer:
    """The closing brackets that a reply gives, with a blank between two.

    opened: the sequence to be completed; a reply that repeats it before its completion has given the completion.
    """
    own = own_part(text)
    if not own:
        return Answer.none(nothing_in(text))
    for rule, pattern in (("answer line", _BRACKET_LINE), ("boxed", _BOX_LINE)):
        for match in reversed(list(pattern.finditer(own))):
            if _ONLY_BRACKETS.fullmatch(match["brackets"]):
                return _brackets(match["brackets"], opened, rule, match.span("brackets"))
    last = own.rsplit("\n", 1)[-1]
    if _ONLY_BRACKETS.fullmatch(last):
        return _brackets(last, opened, "last line", (len(own) - len(last), len(own)))
    return Answer.none("no brackets are stated")


def brackets_key(text: str) -> str:
    """The brackets of a text, with a blank between two."""
    return " ".join(char for char in text if char in "()[]{}<>")


def _brackets(text: str, opened: str, rule: str, span: tuple[int, int]) -> Answer:
    key, before = brackets_key(text), brackets_key(opened)
    if before and key.startswith(f"{before} "):
        key, rule = key.removeprefix(f"{before} "), f"{rule} (whole sequence)"
    if any(bracket in "([{<" for bracket in key):
        return Answer.none("opening brackets")
    return Answer(key, key, rule, span)
