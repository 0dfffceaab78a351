"""Which part of a reply is the model's own answer to this question. Knows nothing of numbers, letters or tasks.

Everything here keeps positions: a character is replaced by one character, and what does not count is blanked, so that
a span found in the result is a span of the reply as it was given.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from debate_local.core.chat import REASONING_TAGS, split_reasoning
from debate_local.tasks.answers.voice import asks

# Compatibility forms that are another dress of one plain character. Superscripts are not: 10³ is no 103.
_DRESSES = ("<wide>", "<narrow>", "<small>", "<noBreak>", "<compat>", "<font>")
_PLAIN_MARKS = {"’": "'", "‐": "-", "‑": "-", "✕": "×", "⋅": "×", "٫": ".", "٬": ",", "\u200b": " ", "\ufeff": " "}


class _Plain(dict[int, str]):
    """Filled as characters are met: full-width and other decimal digits, wide marks and blanks become ASCII."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        digit = unicodedata.decimal(char, None)
        if digit is not None:
            plain = str(digit)
        elif char in _PLAIN_MARKS:
            plain = _PLAIN_MARKS[char]
        elif unicodedata.decomposition(char).startswith(_DRESSES):
            form = unicodedata.normalize("NFKC", char)
            plain = form if len(form) == 1 else char
        else:
            plain = char
        self[code] = plain
        return plain


_PLAIN = _Plain()

_REASONING_BLOCK = re.compile(rf"<({'|'.join(REASONING_TAGS)})>.*?</\1>", re.IGNORECASE | re.DOTALL)
_TEMPLATE_TOKEN = re.compile(r"<\|[^|<>\n]{1,40}\|>|</?s>|<(?:start|end)_of_turn>|<[be]os>|\[/?INST\]")
_RESTATED = re.compile(
    r"[\s#*>_]*+(?:question|problem|exercise|q|frage|问题|题目)[*_]{0,3} ?:"
    r"(?:[^?\n]|\n(?![ \t#*>_]*(?:answer|solution|a)\b|\s*\n))*+\??",
    re.IGNORECASE,
)
_ROLE = re.compile(r"\s*(?:assistant|model)\b[: \t]*\n?", re.IGNORECASE)
# Every branch begins with a letter, so that the search can skip to the next of these letters.
_LABEL = r"(?: ?#?\d{1,3})?[*_]{0,3} ?:"
_LABELS = (
    "Question QUESTION Problem PROBLEM Exercise Instruction User USER Human Student Frage Pregunta Domanda Pergunta"
)
_LABELS += " Вопрос 问题 题目 質問 問題 문제 질문 Q"
_NEW_TURN = re.compile(
    "|".join(
        [word + _LABEL for word in _LABELS.split()]
        + [rf"{word} (?:question|problem)\b" for word in ("Next", "Another", "New")]
        + [rf"{word} #?\d{{1,3}}[*_]*(?:[.)]|[ \t]*\n)" for word in ("Question", "Problem", "Exercise", "Example")]
        + [r"The following (?:is|are) (?:an? )?multiple[- ]choice"]
    )
)
_BOUNDARY = re.compile(r"[.!?>\n。][\s#*>_-]*\Z")
# Struck out text, and the marks around bold words.
_MARKUP_MARKS = re.compile(r"~~[^~\n]{1,200}~~|(?<![A-Za-z0-9_])__(?=[^\s_])|(?<=[^\s_])__(?![A-Za-z0-9_])")
_MARKUP = " \t\n#*>_-"
_SENTENCE_END = re.compile(
    r"[.!?。;\n](?:(?<=[。;\n])|(?=[\s\"')*\]_$]|\Z)(?<!approx.)(?<!\bca.)(?<!\bRs.)"
    r"(?<!i\.e\.)(?<!e\.g\.)(?<!\bvs\.)(?<!\b[MD]r\.)(?<!\bMrs\.))"
)


class Sentence(NamedTuple):
    """One sentence: [start, end) without its end mark, and that mark ("" when the reply stops without one)."""

    start: int
    end: int
    mark: str


def plain(text: str) -> str:
    """The same text, character for character, with full-width and other digits, marks and blanks as ASCII."""
    return text if text.isascii() else text.translate(_PLAIN)


def lower(text: str) -> str:
    """Lower case of the same length (a few letters grow when lowered; then the text stays as it is)."""
    low = text.lower()
    return low if len(low) == len(text) else text


class OwnText:
    """A reply's own part (`own_part`), as written and in lower case; the same length."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.low = lower(text)


def own_part(text: str, question: str = "") -> str:
    """The reply, made plain, with everything blanked or cut that is not the model's answer.

    That is: reasoning blocks (one that never closes leaves nothing), template tokens, the question where it is
    repeated word for word or after a label, and an invented next question or turn. Blanks at the end are cut.
    """
    text = plain(text)
    start, end = 0, len(text)
    if "<" in text or "[" in text or text.startswith("analysis"):
        text = _without_reasoning(text)
        start, end = _between_tokens(text, 0, end)
    echo = plain(question).strip()
    # A question of one word could be an answer.
    if " " in echo and echo in text:
        text = text.replace(echo, " " * len(echo))
    if restated := _RESTATED.match(text, start, end):
        start = restated.end()
    end = _before_next_turn(text, start, end)
    if "~~" in text or "__" in text:
        text = _MARKUP_MARKS.sub(lambda mark: " " * len(mark.group()), text)
    own = (text[:end] if not start else " " * start + text[start:end]).rstrip()
    return own[: _next_question(own)].rstrip() if "?" in own else own


def nothing_in(text: str) -> str:
    """Why a reply without an own part has no answer."""
    return "nothing outside reasoning, question and template tokens" if text.strip() else "empty reply"


def sentences(text: str, start: int = 0, end: int | None = None) -> Iterator[Sentence]:
    """The sentences of text[start:end], blank ones left out. A line break and a semicolon end a sentence, too."""
    end = len(text) if end is None else end
    for stop in _SENTENCE_END.finditer(text, start, end):
        if text[start : stop.start()].strip():
            yield Sentence(start, stop.start(), stop.group())
        start = stop.end()
    if text[start:end].strip():
        yield Sentence(start, end, "")


def _without_reasoning(text: str) -> str:
    """Reasoning as blanks. What it is, `core.chat.split_reasoning` says; a block that never closes leaves nothing."""
    kept = split_reasoning(text).text
    place = text.rfind(kept)
    if place >= 0:
        return " " * place + kept + " " * (len(text) - place - len(kept))
    # Text before and after closed blocks.
    return _REASONING_BLOCK.sub(lambda block: " " * len(block.group()), text)


def _between_tokens(text: str, start: int, end: int) -> tuple[int, int]:
    """Leading template tokens are skipped, the first one after some text ends the reply."""
    for token in _TEMPLATE_TOKEN.finditer(text, start, end):
        if text[start : token.start()].strip():
            return start, token.start()
        role = _ROLE.match(text, token.end())
        start = role.end() if role else token.end()
    return start, end


def _before_next_turn(text: str, start: int, end: int) -> int:
    """A label that opens the reply, or is introduced by a colon, repeats this question; any other starts a new one."""
    for label in _NEW_TURN.finditer(text, start, end):
        near = max(start, label.start() - 40)
        if label.start() == near or text[label.start() - 1].isalnum():
            continue
        if not _BOUNDARY.search(text, near, label.start()):
            continue
        before = text[near : label.start()].rstrip(_MARKUP)
        if before.strip(_MARKUP) and not before.endswith(":"):
            return label.start()
    return end


_INVENTED = re.compile(r"(?:answer(?: is|:)|boxed\{)[^\n]{0,200}(\n[ \t]*\n)([^\n?]{0,300}\?)", re.IGNORECASE)
_NEXT_CHOICE = re.compile(r"\A\W*\w{1,12}\W*?(\n[ \t]*\n)[^\n?]{0,300}\?\s*\n\s*\(?A[).:]")


def _next_question(text: str) -> int:
    """Where, a paragraph after an answer, the model goes on to ask itself something new; else the end."""
    if after_a_word := _NEXT_CHOICE.match(text):
        return after_a_word.start(1)
    for found in _INVENTED.finditer(text):
        if asks(found[2].lower()):
            return found.start(1)
    return len(text)
