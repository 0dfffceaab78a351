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
  lenient: bold          **She has 42 jars**, since 6 * 7 = 42. One is open.
  lenient: equation      6 * 7 = 42
  lenient: conclusion    ..., so 42 are left
  lenient: last number   The six boxes hold 42 jars.
"""

import re
from fractions import Fraction

from debate_local.core.transcript import Answer
from debate_local.tasks.answers.number_choice import NumberText, stated
from debate_local.tasks.answers.number_prose import concluded, led_to_by_a_verb, opens
from debate_local.tasks.answers.numerals import Numeral, canonical
from debate_local.tasks.answers.reply import OwnText, Sentence, nothing_in, own_part, plain
from debate_local.tasks.answers.statements import (
    CUE_WORDS,
    Found,
    Statement,
    box_before,
    last_words,
    link_after,
    settle,
    stretch,
)

FORMAT = "Give the final answer as one number inside \\boxed{} at the end of your reply."


def read_number(text: str, question: str = "") -> Answer:
    """The number a reply gives as its answer.

    question: what was asked; where the reply repeats it word for word, that part is not read, and cents or dollars that
    it asks for are the unit. value and key are the canonical decimal (ASCII minus, no grouping), or `p/q` when no
    finite decimal is equal; both exact.
    """
    own = own_part(text, question)
    if not own:
        return Answer.none(nothing_in(text))
    reply = NumberText(own)
    asked = plain(question)
    found = settle(
        reply,
        _CUE,
        lambda statement: _stated(reply, statement),
        lambda start, corrects: _lenient(reply, start, asked, corrects),
        _own_cue,
        lambda one, other: one.value == other.value,
    )
    if found is None:
        return Answer.none("no number")
    numeral = found.thing
    if numeral is None or numeral.value is None:
        return Answer.none(found.rule)
    exact, form = _in_asked_unit(reply, numeral, numeral.value, asked)
    value = canonical(exact)
    return Answer(value, value, f"{found.rule} ({form})" if form else found.rule, (numeral.start, numeral.end))


_ASKS_FOR_CENTS = re.compile(r"\b(?:in|how many) cents\b", re.IGNORECASE)
_ASKS_FOR_DOLLARS = re.compile(r"\b(?:in|how many) dollars\b", re.IGNORECASE)
_CENTS = re.compile(r"\s?(?:cents?\b|¢)")


def _in_asked_unit(reply: NumberText, numeral: Numeral, value: Fraction, question: str) -> tuple[Fraction, str]:
    """The value and the numeral's form; $0.25 is 25 where the question asks for cents, 25 cents are 0.25 in dollars."""
    written = reply.text[numeral.start : numeral.end]
    if "$" in written and _ASKS_FOR_CENTS.search(question):
        return value * 100, "dollars as cents"
    if _CENTS.match(reply.low, numeral.end) and "$" not in written and _ASKS_FOR_DOLLARS.search(question):
        return value / 100, "cents as dollars"
    return value, numeral.form


def same_number(a: Answer, b: Answer) -> bool:
    """True when both are answers and the same number. Exact: 2/3 and 0.667 differ."""
    return a.key is not None and a.key == b.key


_CUE = re.compile(rf"{CUE_WORDS}|result(?=[*_]*:)|my (?:own )?(?:result|value|figure)\b,?")


def _own_cue(reply: OwnText, cue: re.Match[str]) -> Statement | None:
    """`Result: 18` on a line of its own, `my result, 18, ...`: the number must come at once."""
    link = link_after(reply, cue.end())
    sentence = stretch(reply, link.end()) if link else None
    return Statement("answer", cue.start(), sentence.start, sentence.end, label=True) if sentence else None


_HASH_VALUE = re.compile(r"(?!\d{1,2}[.)]\s)(?=[-−]?\\?[$£€]?[-−]?\d)")


def _stated(reply: NumberText, statement: Statement) -> Found[Numeral] | None:
    if statement.rule == "boxed":
        return _boxed(reply, statement)
    if statement.rule == "hash" and not _HASH_VALUE.match(reply.text, statement.start):
        return None
    if statement.label and _LIST_NUMBER.match(reply.text, statement.start):
        return None
    found = stated(reply, statement.start, statement.end, statement.rule)
    if found is None or found.thing is None or not statement.label:
        return found
    return found if _comes_at_once(reply, statement, found.thing) else None


def _boxed(reply: NumberText, box: Statement) -> Found[Numeral] | None:
    if not box.closed:
        return Found("cut off in a box")
    if _EMPTY.fullmatch(reply.text, box.start, box.end) and not box.bare:
        # The form of the answer, when something follows.
        return None if reply.text[box.end :].strip(" \n$}*.\\])") else Found("an empty box")
    if box.bare:
        first = next(iter(reply.numerals(box.start, box.end)), None)
        return Found("boxed", first) if first and first.start == box.start else None
    found = stated(reply, box.start, box.end, "boxed")
    if found and found.thing and (before := box_before(reply, box.cue)):
        earlier = stated(reply, *before, "boxed")
        if earlier and earlier.thing and earlier.thing.value != found.thing.value:
            return Found("several boxes in one list")
    return found


# Possessive: a long row of dots must not be tried in pieces.
_EMPTY = re.compile(r"(?:\s|\\phantom\{[^{}]*\}|\\[,;:!quad ]++|\.{2,}+|\\l?dots|_++|\?)*+")
_FILLERS = re.compile(
    r"[\s*_$\\(\[{\"'>]*(?:(?:so|therefore|thus|about|approximately|approx\.?|roughly|exactly|only|a|the|total|number"
    r"|of|it|is|equal|to|there|are|x|=|[a-z]\s*=|\\[a-z]+\{?)[\s*_$:,({]*)*+\Z"
)
_AFTER_LABEL = re.compile(
    r"[\s*.)]{0,8}(?:\Z|\n[ \t]*\n|\n\W{0,8}(?:explanation|steps?|working|reasoning|solution|check|conf|note))"
)


def _comes_at_once(reply: NumberText, statement: Statement, numeral: Numeral) -> bool:
    """After a mere label (`Answer: She has 16 eggs. She eats 3. ...`) whole workings may follow: not a statement."""
    start, end = statement.start, statement.end
    if "=" in reply.text[start:end] or _FILLERS.match(reply.low, start, numeral.start):
        return True
    return _AFTER_LABEL.match(reply.low, end) is not None


def _lenient(reply: NumberText, start: int, question: str, corrects: bool) -> Found[Numeral] | None:
    """The number of the last sentence that has one and is neither a question, a check, nor about another agent."""
    text = _without_list_numbers(_before_explanation(reply.text, start), start)
    view = reply if text is reply.text else NumberText(text)
    last: Found[Numeral] | None = None
    further = 0
    for word in last_words(view, start, "" if corrects else question, corrects):
        if word.refusal:
            return last or Found(word.refusal)
        found = concluded(view, word.sentence)
        if word.last and not word.sentence.mark and not _complete(view, word.sentence, found, word.alone):
            return Found("cut off in a sentence")
        if found is None:
            continue
        if last is None and (corrects or found.thing is None):
            return found
        if point := _point(view, word.sentence, found, remark=last):
            return point
        last = last or found
        further += 1
        if further > _REMARKS:
            break
    return last


# How many sentences of mere remarks may follow the one that makes the point.
_REMARKS = 3
_MAKES_THE_POINT = re.compile(r"[\s*_>#-]*(?:so|therefore|thus|hence|altogether|all in all|overall)\b")
_BOLD = re.compile(r"\*\*([^*\n]{1,120})\*\*")
_CLAUSE = re.compile(r"(?:[^\W\d]{2,}\W+){2}")


def _point(
    reply: NumberText, sentence: Sentence, found: Found[Numeral], remark: Found[Numeral] | None
) -> Found[Numeral] | None:
    """The number of a sentence that makes the reply's point: it concludes, or sets the number in bold.

    remark: what a later sentence arrives at. An equation is no mere remark, unless the point is a clause in bold.
    """
    if found.thing is None:
        return None
    worked_out = remark is not None and remark.rule != "lenient: last number"
    for bold in _BOLD.finditer(reply.text, max(0, sentence.start - 2), min(len(reply.text), sentence.end + 3)):
        inside = any(n.value == found.thing.value for n in reply.numerals(*bold.span(1)))
        if inside and not bold[1].rstrip().endswith(":") and (not worked_out or _CLAUSE.search(bold[1])):
            return Found("lenient: bold", found.thing)
    if worked_out:
        return None
    if _MAKES_THE_POINT.match(reply.low, sentence.start, sentence.end):
        return Found("lenient: conclusion", found.thing)
    return found if remark is None and _strong(reply, sentence, found) else None


def _strong(reply: NumberText, sentence: Sentence, found: Found[Numeral]) -> bool:
    """No bold clause can come before, and the last sentence concludes or works something out."""
    worked_out = found.rule != "lenient: last number" or "=" in reply.text[sentence.start : sentence.end]
    return worked_out and "**" not in reply.text


_EXPLANATION = re.compile(
    r"\n\s*\n?[\s*_#]*(?:(?:detailed |step-by-step )?(?:explanation|steps|working|reasoning|details|calculation)"
    r"|long answer)"
    r"[*_]*\s*(?::|\n)",
    re.IGNORECASE,
)


def _before_explanation(text: str, start: int) -> str:
    """What stands before an explanation that follows a short answer (`It costs $56. Explanation: ...`)."""
    heading = _EXPLANATION.search(text, start)
    if (
        heading is None
        or heading.start() > _SHORT_ANSWER
        or not any(char.isdecimal() for char in text[: heading.start()])
    ):
        return text
    return text[: heading.start()] + "."


_SHORT_ANSWER = 160
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
_TAIL = re.compile(
    r"\W*(?:(?!(?:and|then|when|but|so|which|while|who|or(?! so\b))\b)[^\W\d]++(?:\^?\d)?+[^\w,;]*+){0,9}+\Z"
)
_COMMA_TAIL = re.compile(r"(?:\W*(?!(?:and|then|when|but|so|which|while|who|or)\b)[^\W\d]++){0,9}+\s*,\s*\Z")
_BELIEF_LAST = re.compile(r",?\s*(?:with\s+)?(?:about\s+)?\d+\s?%\s*(?:confidence|sure|certain(?:ty)?|confident)\W*\Z")
_DANGLING = re.compile(
    r"(?:\b(?:for|and|of|the|to|a|an|with|that|is|by|in|then|so|but|or|when|if|from|at|on|as|which|plus|minus|times)"
    r"|[-+×/=,(:]\s*\$?|\s\*)\s*\Z"
)


def _complete(reply: NumberText, sentence: Sentence, found: Found[Numeral] | None, alone: bool) -> bool:
    """Does a last sentence without an end mark look finished? A reply that was cut off gives no answer."""
    low, start, end = reply.low, sentence.start, sentence.end
    if belief := _BELIEF_LAST.search(low, max(start, end - 40), end):
        end = belief.start()
    if found and found.thing and _COMMA_TAIL.match(low, found.thing.end, end):
        # A comma too many: `she has to order 4 sacks, every week,`
        return led_to_by_a_verb(low, start, found.thing)
    if _DANGLING.search(low, max(start, end - 20), end):
        return False
    if _END_MARK.search(low, max(start, end - 4), end):
        return True
    if found is None or found.thing is None:
        return found is not None
    if found.rule == "lenient: equation" and reply.text[found.thing.end : end].lstrip(" $&").startswith("="):
        # -23 = 4 - 27
        return True
    # `12, because 3 * 4 = 12` is told to the end.
    last = reply.numerals(found.thing.end, end)[-1:]
    if last and last[0].value == found.thing.value and _TAIL.match(low, last[0].end, end):
        return True
    if not _TAIL.match(low, found.thing.end, end):
        return False
    return alone or opens(low, start, found.thing) or led_to_by_a_verb(low, start, found.thing)
