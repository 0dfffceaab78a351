"""Read the number that answers a question out of a model's reply. Knows nothing of the task, and never guesses.

A stated answer (a box, `####`, "the answer is ...") beats position; of several the last counts; a correction that
follows beats it. Only where nothing is stated does the last sentence speak. Ranges, alternatives, sums that are not
worked out, refusals, questions, values of other agents and cut-off replies are no answer. FORMAT asks for what
the first rule reads.

The rules in their order; `Answer.rule` names the one that matched, with the numeral's form (percent, ...) in brackets:

  boxed                  \\boxed{18}, \\fbox{18}, \\boxed 18
  hash                   #### 18
  tag                    <answer>18</answer>
  final answer           **Final answer:** 18
  answer                 the answer is 18, {"answer": 18}, die Antwort lautet 18, 答案是 18
  correction             The answer is 18. Sorry, I forgot one, so it should be 20.
  lenient: equation      6 * 7 = 42
  lenient: conclusion    ..., so 42 are left
  lenient: last number   The six boxes hold 42 jars.
"""

import re

from debate_local.core.transcript import Answer
from debate_local.tasks.answers import voice
from debate_local.tasks.answers.number_choice import Found, NumberText, concluded, led_to_by_a_verb, opens, stated
from debate_local.tasks.answers.numerals import Numeral, canonical
from debate_local.tasks.answers.reply import Sentence, own_part, plain, sentences

FORMAT = "Give the final answer as one number inside \\boxed{} at the end of your reply."

# A reply may repeat a cue thousands of times, and lenient reading needs only its end: both are bounded.
_MOST_CUES = 12
_LENIENT_WINDOW = 1200
_MOST_SENTENCES = 40
_LONGEST_BOX = 200
_LONGEST_SENTENCE = 300


def read_number(text: str, question: str = "") -> Answer:
    """The number a reply gives as its answer.

    question: what was asked; where the reply repeats it word for word, that part is not read. value and key are the
    canonical decimal (ASCII minus, no grouping), or `p/q` when no finite decimal is equal; both exact.
    """
    own = own_part(text, question).rstrip()
    if not own:
        return Answer.none("nothing outside reasoning, question and template tokens" if text.strip() else "empty reply")
    own = own[: _next_question(own)]
    reply = NumberText(own)
    begin = max(0, len(own) - _LENIENT_WINDOW)
    found = _stated(reply) or _lenient(reply, begin, plain(question)) or Found("no number")
    if found.numeral is None or found.numeral.value is None:
        return Answer.none(found.rule)
    value = canonical(found.numeral.value)
    form = f" ({found.numeral.form})" if found.numeral.form else ""
    return Answer(value, value, found.rule + form, (found.numeral.start, found.numeral.end))


def same_number(a: Answer, b: Answer) -> bool:
    """True when both are answers and the same number. Exact: 2/3 and 0.667 differ."""
    return a.key is not None and a.key == b.key


_INVENTED = re.compile(r"(?:answer(?: is|:)|boxed\{)[^\n]{0,200}(\n[ \t]*\n)([^\n?]{0,300}\?)", re.IGNORECASE)


def _next_question(text: str) -> int:
    """Where, a paragraph after a stated answer, the model goes on to ask itself something new; else the end."""
    if "?" in text:
        for found in _INVENTED.finditer(text):
            if voice.asks(found[2].lower()):
                return found.start(1)
    return len(text)


# Every branch begins with a letter or mark, so that the search can skip to the next of these.
_CUE = re.compile(
    r"\\f?box(?:ed)?(?![a-z])|####|answer|antwort|antwoord|respuesta|réponse|reponse|risposta|resposta|ответ|答案|答え|"
    r"答(?=[:は])|정답|الجواب|الإجابة"
)


def _stated(reply: NumberText) -> Found | None:
    """The last stated answer that can be read, unless what follows corrects or withdraws it."""
    readers = {"\\": _boxed, "#": _hash}
    for cue in reversed(list(_CUE.finditer(reply.low))[-_MOST_CUES:]):
        if not voice.of_a_peer(reply.low, cue.start()):
            found = readers.get(cue.group()[0], _answer)(reply, cue)
            if found is not None:
                return _corrected(reply, found) or found
    return None


_BOX_LIST = re.compile(r"[\s$,;]*(?:and|or)?[\s$]*(?:[a-z]\s*=\s*)?")


def _boxed(reply: NumberText, cue: re.Match[str]) -> Found | None:
    text = reply.text
    start = cue.end()
    while text.startswith(" ", start):
        start += 1
    if not text.startswith("{", start):
        # TeX takes one token without braces.
        bare = next(iter(reply.numerals(start, min(len(text), start + 40))), None)
        return Found("boxed", bare) if bare and bare.start == start else None
    end = _closing_brace(text, start)
    if end is None:
        # A loop that was cut off repeats an earlier box; anything else may lack digits.
        repeats = text.find(text[cue.start() : start + _LONGEST_BOX].rstrip(), 0, cue.start()) >= 0
        return None if repeats else Found("cut off in a box")
    found = stated(reply, start + 1, end, "boxed")
    earlier = _box_before(reply, cue.start())
    if found and found.numeral and earlier and earlier.value != found.numeral.value:
        return Found("several boxes in one list")
    return found


def _box_before(reply: NumberText, place: int) -> Numeral | None:
    """The number in a box that only a comma, `and` or `or` parts from the box at `place`."""
    before = reply.low.rfind("\\boxed{", max(0, place - _LONGEST_BOX), place)
    close = _closing_brace(reply.text, before + 6) if before >= 0 else None
    if close is None or not _BOX_LIST.fullmatch(reply.low, close + 1, place):
        return None
    found = stated(reply, before + 7, close, "boxed")
    return found.numeral if found else None


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


_HASH_VALUE = re.compile(r"\s*+(?!\d{1,2}[.)]\s)(?=[-−]?\\?[$£€]?[-−]?\d)")


def _hash(reply: NumberText, cue: re.Match[str]) -> Found | None:
    """`#### 18`; a heading of the same depth (#### 1. Add, #### Step) states nothing."""
    value = _HASH_VALUE.match(reply.text, cue.end())
    if value is None:
        return None
    limit = min(len(reply.text), value.end() + _LONGEST_SENTENCE)
    end = reply.text.find("\n", value.end(), limit)
    return stated(reply, value.end(), end if end >= 0 else limit, "hash")


_LINK = re.compile(
    r"""(?: (?P<direct>(?:\s+of)?[\s*_]*(?=\\?[$£€]?\d|-\d))
          | (?P<filler>[^\d.\n:=?!>{}]{0,60}?)
            (?: (?P<verb>\b(?:is|was|are|be|equals?|becomes?|comes\ to|ist|lautet|es|est|è|é|هو|هي)\b|[=是为為は])
              | (?P<label>[:>]|\s[-–—](?=\s)|→|->)
              | (?P<heading>\n)))
        [\s:*_"']*""",
    re.VERBOSE,
)
_MARKUP_ONLY = re.compile(r"[\s*_#\"']*\Z")
_NO_LINK = re.compile(r"\b(?:divided|times|plus|minus|multiplied|depends|cannot|can't|can not|not)\b")
_FINAL = re.compile(r"\bfinal\W+\Z")


def _answer(reply: NumberText, cue: re.Match[str]) -> Found | None:
    """`the answer is 18`, `Final answer: 18`, `<answer>18</answer>`, `"answer": 18`, a heading `Answer` and a line."""
    low, start = reply.low, cue.start()
    link = _LINK.match(low, cue.end())
    if link is None or low.startswith("/", start - 1) or voice.supposed(low, start):
        return None
    filler = link["filler"] or ""
    if _NO_LINK.search(filler) or (link["heading"] and not _MARKUP_ONLY.match(filler)):
        return None
    end = min(len(low), link.end() + _LONGEST_SENTENCE)
    sentence = next(sentences(reply.text, link.end(), end), None)
    # A box has its own rule, and has been tried.
    if sentence is None or "\\box" in low[sentence.start : sentence.end]:
        return None
    tag = link["label"] == ">" and low.startswith("<", start - 1)
    final = _FINAL.search(low, max(0, start - 10), start)
    found = stated(reply, sentence.start, sentence.end, "tag" if tag else "final answer" if final else "answer")
    if found is None or found.numeral is None or final or link["verb"] or link["direct"] is not None:
        return found
    return found if _comes_at_once(reply, sentence, found.numeral) else None


_FILLERS = re.compile(
    r"[\s*_$\\(\[{\"'>]*(?:(?:so|therefore|thus|about|approximately|approx\.?|roughly|exactly|only|a|the|total|number"
    r"|of|it|is|equal|to|there|are|x|=|[a-z]\s*=|\\[a-z]+\{?)[\s*_$:,({]*)*+\Z"
)
_AFTER_LABEL = re.compile(
    r"[\s*.)]{0,8}(?:\Z|\n[ \t]*\n|\n\W{0,8}(?:explanation|steps?|working|reasoning|solution|check|conf|note))"
)


def _comes_at_once(reply: NumberText, sentence: Sentence, numeral: Numeral) -> bool:
    """After a mere label (`Answer: She has 16 eggs. She eats 3. ...`) whole workings may follow: not a statement."""
    if "=" in reply.text[sentence.start : sentence.end] or _FILLERS.match(reply.low, sentence.start, numeral.start):
        return True
    return _AFTER_LABEL.match(reply.low, sentence.end) is not None


def _corrected(reply: NumberText, found: Found) -> Found | None:
    """What a correction after the stated answer puts in its place; None when there is no correction."""
    if found.numeral is None or not reply.low[found.numeral.end :].strip(" .\n$*}\\)]"):
        return None
    taken_back = voice.withdrawn(reply.low, found.numeral.end)
    begin = found.numeral.end if taken_back else voice.doubt_after(reply.low, found.numeral.end)
    if begin is not None:
        better = _lenient(reply, max(begin, len(reply.text) - _LENIENT_WINDOW), corrects=not taken_back)
        if better is not None and better.numeral is not None:
            return Found("correction", better.numeral)
    return Found("withdrawn") if taken_back else None


_CHECK = re.compile(
    r"[\s*_#>(\-]*(?:check|verif|to (?:check|verify)|note|remark|confidence|p\.?s\b|proof|hint|tip"
    r"|you asked|the (?:question|problem) asks)"
)


def _lenient(reply: NumberText, start: int, question: str = "", corrects: bool = False) -> Found | None:
    """The number of the last sentence that has one and is neither a question, a check, nor about another agent.

    corrects: only a sentence that puts something in the place of what was said may speak.
    """
    text = _without_list_numbers(reply.text, start)
    view = reply if text is reply.text else NumberText(text)
    ends = list(sentences(view.text, start))
    for sentence in reversed(ends[-_MOST_SENTENCES:]):
        words = view.low[sentence.start : sentence.end]
        if voice.refused(words):
            return Found("a refusal or a question back")
        if sentence.mark == "?" and voice.asks(words):
            return Found("a question and nothing after it")
        if sentence.mark == "?" or _CHECK.match(words) or (corrects and not voice.puts_instead(words)):
            continue
        if voice.about_peers(words) or voice.below_a_peers_name(view.low, sentence.start):
            continue
        if _echoes(view.text, sentence, question):
            continue
        found = concluded(view, sentence)
        if sentence is ends[-1] and not sentence.mark and not _complete(view, sentence, found, len(ends) == 1):
            return Found("cut off in a sentence")
        if found is not None:
            return found
    return None


def _echoes(text: str, sentence: Sentence, question: str) -> bool:
    """Is this sentence, whole, one of the question's?"""
    words = text[sentence.start : sentence.end].strip()
    return words in question and any(words == question[s.start : s.end].strip() for s in sentences(question))


_LIST_NUMBER = re.compile(r"(?m)^[ \t>*]*(?:[-•][ \t]+)?(\d{1,2})[.)][ \t]+(?=\S)")


def _without_list_numbers(text: str, start: int) -> str:
    """The numbers of a numbered list become blanks; a single `12.` at the start of a line is no list."""
    markers = list(_LIST_NUMBER.finditer(text, start))
    if len(markers) < 2 and not any(marker[1] == "1" for marker in markers):
        return text
    pieces, end = [], 0
    for marker in markers:
        pieces += [text[end : marker.start()], " " * len(marker.group())]
        end = marker.end()
    return "".join([*pieces, text[end:]])


_END_MARK = re.compile(r"[!?)\]}*$\"'`|」]\s*\Z")
# Possessive throughout: a word must not be tried in pieces.
_TAIL = re.compile(r"\W*(?:(?!(?:and|then|when|but|so|which|while|who|or)\b)[^\W\d]++(?:\^?\d)?+[^\w,;]*+){0,9}+\Z")
_DANGLING = re.compile(
    r"(?:\b(?:for|and|of|the|to|a|an|with|that|is|by|in|then|so|but|or|when|if|from|at|on|as|which|plus|minus|times)"
    r"|[-+×/=,(:]|\s\*)\s*\Z"
)


def _complete(reply: NumberText, sentence: Sentence, found: Found | None, alone: bool) -> bool:
    """Does a last sentence without an end mark look finished? A reply that was cut off gives no answer."""
    low, start, end = reply.low, sentence.start, sentence.end
    if _DANGLING.search(low, max(start, end - 20), end):
        return False
    if _END_MARK.search(low, max(start, end - 4), end):
        return True
    if found is None or found.numeral is None:
        return found is not None
    if not _TAIL.match(low, found.numeral.end, end):
        return False
    return alone or opens(low, start, found.numeral) or led_to_by_a_verb(low, start, found.numeral)
