"""How a sentence speaks of an option: it picks it, excludes it, or merely names it. Knows no cues and no tasks."""

import re
from typing import NamedTuple

from debate_local.tasks.answers import voice
from debate_local.tasks.answers.letters import letters_in
from debate_local.tasks.answers.options import Options
from debate_local.tasks.answers.reply import OwnText, Sentence


class Named(NamedTuple):
    """Options named together at [start, end), by letter or by text. options: places from 0."""

    start: int
    end: int
    options: tuple[int, ...]
    by_letter: bool


def named_in(reply: OwnText, options: Options, start: int, end: int) -> list[Named]:
    """All options that text[start:end] names, in order. A text hides the letters inside it (hepatitis C virus)."""
    texts = [Named(*mention[:2], (mention.option,), False) for mention in options.texts_in(reply.text, start, end)]
    letters = [Named(*group, True) for group in letters_in(reply, start, end, len(options))]
    # An option whose text is a single letter hides none.
    texts = [text for text in texts if text.end > text.start + 1 or not any(g.start == text.start for g in letters)]
    free = [
        group for group in letters if not any(text.start <= group.start and group.end <= text.end for text in texts)
    ]
    return sorted(texts + free)[-_MOST_NAMED:]


# A sentence that names more is a loop.
_MOST_NAMED = 12


_BETWEEN = r"[\s*_(\[\"'“‘`$]*"
_WORDS_BEFORE = (
    r"(?:(?:with|for|the|an?|only|just|now|definitely|clearly|probably|likely|most likely|still|again|option"
    r"|choice|answer|letter|statement|both|either|correct|right|best|one|be|to|really|simply|necessarily"
    r"|actually|it|is|choose|pick|select|say)\b[\s:]*)*"
)
_EXCLUDED_BEFORE = re.compile(
    rf"(?:\b(?:not|neither|nor|never|without|rather than|instead of|unlike|except|other than|besides|than|over"
    rf"|against|(?:cannot|can't|could not|couldn't)(?: \w+ly)? be|eliminat\w+|exclud\w+|discard\w*|reject\w*"
    rf"|dismiss\w*|rul(?:e|es|ed|ing) out|cross(?:ed|ing)? out)|n't(?: be)?)\s+{_WORDS_BEFORE}{_BETWEEN}\Z"
)
# All except B are wrong.
_ALL_BUT = re.compile(
    rf"\b(?:all|every\w*|each)(?: \w+){{0,4}} (?:except|but|other than|besides"
    rf"|apart from)\s+{_WORDS_BEFORE}{_BETWEEN}\Z"
)
_AFTER = r"[\s)\]*_\"'”’`$.:,–—-]*"
_IS = (
    r"(?:(?:is|are|was|were|will be|must be|has to be|have to be|should be|would be|can be|could be|seems?(?: to be)?"
    r"|appears?(?: to be)?|looks|remains?|stands|then|thus|therefore|this|that|it|=|→|->)\s+)*"
)
_ADVERBS = r"(?:(?:\w+ly|the|an?|my|our|also|all|both|just|most|best|only|one|indeed|obviously|quite|very)\s+)*"
_EXCLUDED_AFTER = re.compile(
    rf"{_AFTER}{_IS}{_ADVERBS}(?:(?:not|wrong|incorrect|false|out|impossible|eliminated|excluded|ruled out|discarded"
    rf"|unlikely|implausible|irrelevant|unrelated|inconsistent|distractors?|traps?|mistakes?|common mistake|tempting"
    rf"|too|cannot|can't|doesn't|don't|does not|do not|isn't|aren't|fails?|contradicts?|no\b(?=\W*\Z))\b|[✗✘❌×])"
)
_PICKED_AFTER = re.compile(
    rf"{_AFTER}(?:[✓✔✅☑]|{_IS}{_ADVERBS}(?:correct|right|true|accurate|best|answer|choice|option|one|winner|suitable"
    rf"|appropriate|supported|closest|it is|left|what (?:we (?:want|need)|is left|remains))\b|(?:fits?|matches|works"
    rf"|holds)(?:\s*\Z| best| all| the (?:question|description|facts))|it is\b|remains?\s*\Z|wins\b)"
)
_LED = re.compile(
    rf"(?:\b(?:so|thus|therefore|hence|it is|it's|it must be|it has to be|must be|should be|has to be|would be"
    rf"|that is|that's|this is|which is|leaves?(?: us| me)?(?: with)?|leaving(?: us| me)?(?: with)?|remaining"
    rf"|i say|i give|argue for"
    rf"|i'd say|i would say|i think|i believe|i guess|(?:go|going|went|stick|sticking|stay|staying) (?:with|for|to)"
    rf"|pick|choose|chose|select|(?:appears?|seems?)(?: \w+ly)? to be|i\.e\.,?|namely|(?:agreed?|settled) on"
    rf"|consensus is|my (?:\w+ )?(?:choice|answer|option|pick|selection),|(?:fits|matches|match|corresponds to"
    rf"|points to|supports|gives|called)|(?:change[sd]?|changing|switch(?:ed|ing)?|revis\w+|update[sd]?"
    rf"|move[sd]?|correct(?:ed|ion)?) (?:my \w+ )?(?:from .{{1,20}} )?to|but|also|daher|donc|por lo tanto"
    rf"|поэтому|所以|因此|故)|=>|→|->|[>:])[\s,:*_]*(?:(?:it|that|this) (?:is|must be|has to be"
    rf"|should be) )?{_WORDS_BEFORE}{_BETWEEN}\Z"
)
_ENDS = re.compile(r"[\s)\]*_\"'”’`$.:,!–—}\\]*\Z")
_FOLLOWED = re.compile(r"[\s)\]}*_\"'”’`$\\]*(?:\Z|[.,;:!\n(–—-]|(?:because|since|as|by|due|given|for|which|based)\b)")
_OTHERS = re.compile(
    r"\b(?:people|students?|many|some|often|might|may|could be tempted|tempt\w*|at first|initially|first glance"
    r"|beginners|commonly|mistake|was going to|nearly|almost|seem(?:s|ed)? (?:right|correct|plausible)|one would"
    r"|if)\b"
)


# For an option's text in the last sentence, and for a letter at the end of one that concludes, a bare verb is enough.
_BARE_VERB = re.compile(rf"\b(?:is|are|was|were|called|named|has|have|equals|means)\s+{_WORDS_BEFORE}{_BETWEEN}\Z")
_CONCLUDES = re.compile(r"\b(?:so|therefore|thus|hence|consequently)\b")
_COMMA = re.compile(rf",\s*{_BETWEEN}\Z")


def manner(reply: OwnText, sentence: Sentence, named: Named, start: int, final: bool = False) -> str:
    """`excluded`, `whole` (nothing else is said), `picked` (B is correct), `led` (so B), or "" for merely named.

    start: where the sentence's own words begin, behind fillers such as `so`. final: is it the reply's last sentence?
    """
    low, end = reply.low, sentence.end
    near = max(sentence.start, named.start - 60)
    agreement = voice.agrees_with(low, near, named.start)
    if agreement is not None:
        return "led" if agreement else "excluded"
    if _ALL_BUT.search(low, near, named.start) and _EXCLUDED_AFTER.match(low, named.end, end):
        return "picked"
    if _EXCLUDED_BEFORE.search(low, near, named.start) or _EXCLUDED_AFTER.match(low, named.end, end):
        return "excluded"
    if others(low, sentence.start, named.start):
        return ""
    if start == named.start and _FOLLOWED.match(low, named.end, end):
        return "whole"
    if _PICKED_AFTER.match(low, named.end, end):
        return "" if re.search(r"\b(?:if|unless|in part|partially)\b", low[named.end : end]) else "picked"
    if _LED.search(low, near, named.start):
        return "led"
    ends = _ENDS.match(low, named.end, end) is not None
    if final and ends and _COMMA.search(low, near, named.start):
        return "led"
    bare = _BARE_VERB.search(low, near, named.start) is not None
    return (
        "led"
        if final and bare and (not named.by_letter or (ends and _CONCLUDES.search(low, sentence.start, near + 60)))
        else ""
    )


def others(low: str, start: int, place: int) -> bool:
    """Do the words before `place`, in its clause, speak of what others think, or of what only seems so?"""
    clause = max([start, *(low.rfind(mark, start, place) + 1 for mark in ",;:")])
    return _OTHERS.search(low, clause, place) is not None
