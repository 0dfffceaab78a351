"""Where a reply states its answer, and how a statement, a correction and the last words settle it. For every reader.

Knows cues (a box, `####`, "the answer is ..."), not what may stand behind them: each reader says what it can read in a
stretch of the reply. The order is the same for all: the last readable statement, unless what follows corrects or
withdraws it; only where nothing is stated do the last sentences speak.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from debate_local.tasks.answers import voice
from debate_local.tasks.answers.reply import OwnText, Sentence, sentences

# A reply may repeat a cue thousands of times, and lenient reading needs only its end: both are bounded.
MOST_CUES = 12
LENIENT_WINDOW = 1200
_MOST_SENTENCES = 40
_LONGEST_BOX = 600
_LONGEST_STRETCH = 300
# A longer sentence is a loop; what it arrives at stands at its end.
_LONGEST_SENTENCE = 400


class Placed(Protocol):
    """Something found at [start, end) of a reply."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


T = TypeVar("T", bound=Placed)


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A verdict: what was found and the rule that chose it, or nothing and why there is no answer."""

    rule: str
    thing: T | None = None


class Statement(NamedTuple):
    """A stretch [start, end) that states the answer; its cue begins at `cue`.

    rule: boxed, hash, tag, final answer, answer, or the name of a reader's own cue. label: a mere label led to it
    (`Answer: She has 16. She ...`), so that whole workings may follow. bare: a box without braces, `\\boxed 7`.
    closed: False for a box that the end of the reply cuts off.
    """

    rule: str
    cue: int
    start: int
    end: int
    label: bool = False
    bare: bool = False
    closed: bool = True

    def supposed(self, reply: OwnText) -> bool:
        """Does it hold only on one of several suppositions: `on this reading the answer would be 18`?"""
        return voice.supposing(reply.low, self.cue)


Stated = Callable[[Statement], Found[T] | None]
Lenient = Callable[[int, bool], Found[T] | None]
Same = Callable[[T, T], bool]
OwnCue = Callable[[OwnText, re.Match[str]], Statement | None]


def settle(
    reply: OwnText,
    cues: re.Pattern[str],
    stated: Stated[T],
    lenient: Lenient[T],
    own_cue: OwnCue | None = None,
    same: Same[T] | None = None,
) -> Found[T] | None:
    """What the reply settles on; None when it says nothing.

    cues: `CUE`, or a reader's own pattern that begins with `CUE_WORDS`; own_cue says what the reader's own cues state.
    stated: reads a statement; None when it states nothing readable. lenient: reads what follows a
    position; when told so, only what puts something in the place of what was said. same: are two things one answer?
    Where it is given, statements on two suppositions that differ are no answer.
    """
    found = settle_stated(reply, cues, stated, lenient, own_cue, same)
    return found or lenient(max(0, len(reply.text) - LENIENT_WINDOW), False)


def settle_stated(
    reply: OwnText,
    cues: re.Pattern[str],
    stated: Stated[T],
    lenient: Lenient[T],
    own_cue: OwnCue | None = None,
    same: Same[T] | None = None,
) -> Found[T] | None:
    """`settle` without the last words of a reply that states nothing."""
    supposed: Found[T] | None = None
    for statement in statements(reply, cues, own_cue):
        found = stated(statement)
        if found is None:
            continue
        found = corrected(reply, found, lenient) or found
        if supposed and supposed.thing and found.thing and same and statement.supposed(reply):
            return supposed if same(supposed.thing, found.thing) else Found("several candidates")
        if supposed or not same or not statement.supposed(reply):
            return supposed or found
        supposed = found
    return supposed


def corrected(reply: OwnText, found: Found[T], lenient: Lenient[T]) -> Found[T] | None:
    """What a correction after the answer puts in its place; None when there is no correction."""
    thing = found.thing
    if thing is None or not reply.low[thing.end :].strip(" .\n$*}\\)]"):
        return None
    taken_back = voice.withdrawn(reply.low, thing.end)
    begin = thing.end if taken_back else voice.doubt_after(reply.low, thing.end)
    if begin is not None:
        better = lenient(max(begin, len(reply.text) - LENIENT_WINDOW), not taken_back)
        if better is not None and better.thing is not None:
            return Found("correction", better.thing)
    return Found("withdrawn") if taken_back else None


# Every branch begins with a letter or mark, so that the search can skip to the next of these; where a word begins is
# looked at behind it.
CUE_WORDS = (
    r"\\f?box(?:ed)?(?![a-z])|####|answer|antwort|antwoord|respuesta|réponse|reponse|risposta|resposta|ответ|答案|答え|正解"
    r"|答(?=[:は])|정답|الجواب|الإجابة|đáp (?:số|án)|jawaban|odpowied[źz]|odpověď|cevap|yanıt|vastaus|απάντηση|תשובה"
    r"|उत्तर|svaret|ans\b(?<=\bans)|me(?=:)(?<=\bme)|mine(?=:)(?<=\bmine)"
)
CUE = re.compile(CUE_WORDS)
_LINK = re.compile(
    r"""(?: (?P<direct>(?:\s+of)?[\s*_]*(?=\\?[$£€]?\d|-\d))
          | (?P<filler>[^\d.\n:=?!>{}]{0,60}?)
            (?: (?P<verb>\b(?:is|was|are|be|equals?|becomes?|comes\ to|remains|stays|ist|lautet|es|est|è|é|هو|هي
                    |là|adalah|jest|är|είναι|היא|הוא|है)\b
                  |[=是为為は]|[은는](?=\s))
              | (?P<label>[:>\]]|:?\s?-(?=\s)|\s[–—](?=\s)|→|->)
              | (?P<heading>\n)))
        [\s:*_"']*""",
    re.VERBOSE,
)
_MARKUP_ONLY = re.compile(r"[\s*_#\"']*\Z")
_NO_LINK = re.compile(r"\b(?:divided|times|plus|minus|multiplied|depends|cannot|can't|can not|not)\b")
_FINAL = re.compile(r"\bfinal\W+\Z")


def statements(reply: OwnText, cues: re.Pattern[str], own_cue: OwnCue | None = None) -> Iterator[Statement]:
    """The reply's own statements, the last one first; what other agents state is left out."""
    readers = {"\\": _box, "#": _hash}
    for cue in reversed(list(cues.finditer(reply.low))[-MOST_CUES:]):
        if not voice.of_a_peer(reply.low, cue.start()):
            own = own_cue if own_cue and not CUE.match(reply.low, cue.start()) else None
            statement = (own or readers.get(cue.group()[0], _linked))(reply, cue)
            if statement is not None:
                yield statement


def _box(reply: OwnText, cue: re.Match[str]) -> Statement | None:
    text, start = reply.text, cue.end()
    if _NOT.search(reply.low, max(0, cue.start() - 20), cue.start()):
        return None
    while text.startswith(" ", start):
        start += 1
    if not text.startswith("{", start):
        # TeX takes one token without braces.
        return Statement("boxed", cue.start(), start, min(len(text), start + 40), bare=True)
    end = _closing_brace(text, start)
    if end is not None:
        return Statement("boxed", cue.start(), start + 1, end)
    # A loop that was cut off repeats an earlier box; anything else may lack its end.
    repeats = text.find(text[cue.start() : start + _LONGEST_BOX].rstrip(), 0, cue.start()) >= 0
    return None if repeats else Statement("boxed", cue.start(), start + 1, len(text), closed=False)


_NOT = re.compile(r"\b(?:not|instead of|rather than)\s+[$(]*\Z")
_BOX_LIST = re.compile(r"[\s$,;]*(?:and|or|\\text\{\s*(?:and|or)\s*\})?[\s$]*(?:[a-z]\s*=\s*)?")


def box_before(reply: OwnText, place: int) -> tuple[int, int] | None:
    """The content of a box that only a comma, `and` or `or` parts from the box at `place`: a list of boxes."""
    before = reply.low.rfind("\\boxed{", max(0, place - _LONGEST_BOX), place)
    close = _closing_brace(reply.text, before + 6) if before >= 0 else None
    if close is None or not _BOX_LIST.fullmatch(reply.low, close + 1, place):
        return None
    return before + 7, close


def _closing_brace(text: str, opening: int) -> int | None:
    depth = 0
    for index in range(opening, min(len(text), opening + _LONGEST_BOX)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if not depth:
                return index
    return None


_BLANKS = re.compile(r"\s*+")


def _hash(reply: OwnText, cue: re.Match[str]) -> Statement:
    """`#### 18`. A heading of the same depth (#### Step 2) looks alike: the reader tells them apart."""
    blanks = _BLANKS.match(reply.text, cue.end())
    start = blanks.end() if blanks else cue.end()
    limit = min(len(reply.text), start + _LONGEST_STRETCH)
    end = reply.text.find("\n", start, limit)
    return Statement("hash", cue.start(), start, end if end >= 0 else limit)


_CLOSING_TAG = re.compile(r"[<\[]/[\w-]*\Z")
_OPENING_TAG = re.compile(r"[<\[][\w-]*\Z")
_NOT_A_CUE = re.compile(r"\bbefore (?:i|we) \Z|\b(?:to|cannot|can't|not) \Z|(?:peers?|others?|their|agent\w*)_\Z")
_ANSWER_BEFORE = re.compile(r"\b(?:that's|(?:that|which|this|is|as)) (?:is )?(?:my|the|our) (?:\w+ ){0,2}\Z")


def _linked(reply: OwnText, cue: re.Match[str]) -> Statement | None:
    """`the answer is 18`, `Final answer: 18`, `<answer>18</answer>`, `"answer": 18`, a heading `Answer` and a line."""
    low, start = reply.low, cue.start()
    near = max(0, start - 40)
    if _CLOSING_TAG.search(low, near, start) or _NOT_A_CUE.search(low, near, start) or voice.supposed(low, start):
        return None
    link = link_after(reply, cue.end())
    if link is None or link["direct"] is None:
        # `so 18 is my final answer`
        before = _ANSWER_BEFORE.search(low, near, start)
        if before and (not link or not link["verb"]):
            begin = (
                max(low.rfind("\n", 0, before.start()), low.rfind(". ", 0, before.start()), start - _LONGEST_STRETCH)
                + 1
            )
            return Statement("answer", start, begin, before.start())
    if link is None:
        return None
    sentence = stretch(reply, link.end())
    if sentence is None:
        return None
    tag = link["label"] == ">" and _OPENING_TAG.search(low, near, start)
    final = _FINAL.search(low, max(0, start - 10), start) is not None
    label = not final and not link["verb"] and link["direct"] is None
    rule = "tag" if tag else "final answer" if final else "answer"
    return Statement(rule, start, sentence.start, sentence.end, label)


def link_after(reply: OwnText, place: int) -> re.Match[str] | None:
    """What links a cue that ends at `place` to what it states: `is`, a colon, a line break below a heading."""
    link = _LINK.match(reply.low, place)
    filler = (link["filler"] or "") if link else ""
    if link is None or _NO_LINK.search(filler) or (link["heading"] and not _MARKUP_ONLY.match(filler)):
        return None
    return link


def stretch(reply: OwnText, place: int) -> Sentence | None:
    """The sentence at `place`, up to a box, which has its own rule; of a JSON value, just this value."""
    end = min(len(reply.text), place + _LONGEST_STRETCH)
    quote = reply.text[place - 1 : place]
    if quote in ('"', "'") and (close := _JSON_END.search(reply.text, place, end)) and close.group()[0] == quote:
        end = close.start()
    box = reply.low.find("\\box", place, end)
    sentence = next(sentences(reply.text, place, end), None)
    if sentence is None or box < 0 or box >= sentence.end:
        return sentence
    return Sentence(sentence.start, box, "") if reply.text[sentence.start : box].strip() else None


_JSON_END = re.compile(r"[\"'](?=\s*[,}\n])")
_ASIDE = re.compile(
    r"[\s*_#>(\-]*(?:check|verif|to (?:check|verify)|note|remark|confidence|certainty|p\.?s\b|proof|hint|tip"
    r"|you asked|the (?:question|problem) asks|i'd bet|i bet|i(?:'m| am) (?:about )?\d+ ?%? ?(?:sure"
    r"|certain)\b[^\d]*\Z)|.*\b(?:hope (?:this|that|it) helps|let me know|feel free|thank you for|happy to help"
    r"|good luck)\b"
    # What would be otherwise.
    r"|[\s*_(]*(?:if|had|were) (?![^.]*(?:=|\bthen\b))[^.]*(?:\bwould\b|'d\b)|\s*\((?![^()]*\b(?:thus|so"
    r"|therefore)\b)\s*[^\s()]+\s+[^\s()]+\s[^()]*\)?\W*\Z",
    re.DOTALL,
)


class LastWord(NamedTuple):
    """A sentence that may speak for the reply. last: it ends the reply; alone: there is no other.

    refusal: why neither this nor an earlier one speaks.
    """

    sentence: Sentence
    last: bool
    alone: bool
    refusal: str = ""


def last_words(
    reply: OwnText,
    start: int,
    question: str = "",
    corrects: bool = False,
    means: Callable[[Sentence], bool] | None = None,
) -> Iterator[LastWord]:
    """The sentences after `start`, the last first, without questions, checks, echoes and what is about other agents.

    A refusal and a question that is left open end them. corrects: only sentences that put something in the place of
    what was said. means: True for a sentence that answers although it reads like a refusal.
    """
    ends = list(sentences(reply.text, start))
    declined = voice.declined(reply.low, start)
    for sentence in reversed(ends[-_MOST_SENTENCES:]):
        last, alone = sentence is ends[-1], len(ends) == 1
        if sentence.end - sentence.start > _LONGEST_SENTENCE:
            sentence = sentence._replace(start=sentence.end - _LONGEST_SENTENCE)
        words = reply.low[sentence.start : sentence.end]
        place = (sentence, last, alone)
        if declined or (voice.refused(words) and not (means and means(sentence))):
            yield LastWord(*place, declined or "a refusal or a question back")
            return
        if (sentence.mark == "?" and voice.asks(words)) or voice.sets_a_task(words):
            yield LastWord(*place, "a question and nothing after it")
            return
        if sentence.mark == "?" or _ASIDE.match(words) or (corrects and not voice.puts_instead(words)):
            continue
        if voice.about_peers(words) or voice.below_a_peers_name(reply.low, sentence.start):
            continue
        if not _echoes(reply.text, sentence, question):
            yield LastWord(*place)


def _echoes(text: str, sentence: Sentence, question: str) -> bool:
    """Is this sentence, whole, one of the question's?"""
    words = text[sentence.start : sentence.end].strip()
    return words in question and any(words == question[s.start : s.end].strip() for s in sentences(question))
