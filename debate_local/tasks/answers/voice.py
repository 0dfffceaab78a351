"""Whose word a stretch of a reply is, and whether it is meant: other agents, refusals, suppositions, corrections.

Knows nothing of numbers or letters. All texts are lower case (`reply.lower`); a position is a place in them.
"""

import re

# Word problems have estate agents and participants of their own: a number or `other` makes one a debater.
_PEER = (
    "(?:"
    + "|".join(
        [
            r"(?:agent|solver|expert|participant|debater|solution|response|reply|model)\s*#?\d+",
            r"(?:agent|solver|expert|debater|peer)\s+[b-j]\b",
            # `Agent A says`, and not `pays the agent a fee`.
            r"(?:agent|solver|expert|debater)\s+a\b"
            r"(?=\W*(?:'s|[:,.)]|\w+s\b|\w+ed\b|said\b|chose\b|got\b|answer\b|and\b))",
            r"peers?",
            r"my (?:colleague|teammate|partner|classmate|opponent)s?",
            r"(?:other|another|first|second|third|both|one|two|all|previous)(?:\s+other)?\s+"
            r"(?:agent|peer|solver|solution|response|replie|debater|expert)s?",
            r"of (?:the )?(?:\w+ )?agents",
            r"(?:agent|response)s\b(?=.{0,40}\b(?:say|agree|answer))",
            r"the (?:two |three )?others",
            r"they all",
        ]
    )
    + ")"
)
_PEER_SPEAKS = re.compile(
    rf"\b{_PEER}\b|\btheir (?:final )?answers?\b|\banother (?:says|claims|gets|got|thinks)\b|\baccording to (?!the)"
    # What somebody else might answer.
    r"|\b(?:some|others|many|most|people|students)(?: people| students| of (?:them|you))? (?:might|may|often"
    r"|tend|commonly)\b"
)
_PEER_OWNS = re.compile(rf"\b(?:{_PEER}(?:'s|')|their)\s+(?:\w+\s+)?\Z")
_OWN_VOICE = re.compile(
    r"\b(?:my(?! (?:peer|colleague|teammate|partner|classmate|opponent))|me|i|we|so|therefore|thus|hence|right"
    r"|correct|agree|same|based|considering|given|using|updated|reviewing|reading|after)\b"
)
_AGAINST = re.compile(r"\bdisagree|\bunlike\b")
_DISAGREES_ONLY = re.compile(r"\bdisagree[^,;:]*\Z")
# A line of its own above another agent's text, as debate prompts have it: models repeat it with the text.
_PEER_HEADING = re.compile(
    r"\W*(?:(?:reply|response|answer|solution|message) (?:of|from|by) )?(?:agent|peer) ?#?\d+[^\n:]{0,20}:[ \t*]*\n"
)
_FAULTED = re.compile(r"\b(?:wrong|incorrect|mistaken)\b")

_SUPPOSED = re.compile(r"\b(?:if|suppose|supposing|assume|assuming|whether|say)\s+(?:that\s+)?(?:the|my|our)?\s*\Z")
_DENIED = re.compile(r"(?:\bnot|n't(?:\s+be)?|rather than|instead of|cannot be)\s+(?:\w+\s+)?\Z")
_REJECTED = re.compile(r"\s+(?:(?:is|was|are) (?:wrong|incorrect|impossible|not )|(?:is|was|are)n't )")
_REFUSED = re.compile(
    "|".join(
        [
            r"\b(?:cannot|can't|can not|could not|couldn't|unable to|not possible to|impossible to)\s+"
            r"(?:be\s+)?(?:\w+ly\s+)?"
            r"(?:determine|calculate|solve|answer|find|found|compute|know|help|work|give|tell|provide|assist|say|decide"
            r"|choose)",
            r"\b(?:not enough|insufficient|missing|(?:needs?|required?|without) (?:some |a bit |a little )?more)"
            r" (?:information|data|detail|context)",
            r"\bmore (?:information|data|details?|context) (?:is|are|would be) (?:needed|required|necess)",
            r"\b(?:i|we)(?:'m| am| are)? (?:would need|will need|need (?:the|to know|more|a bit more)|don't know"
            r"|do not know|not sure)",
            r"\bis (?:missing|unknown|undefined|indeterminate|not (?:given|stated|known|provided|specified|defined))",
            r"\bisn't defined|\brather not\b|\bit (?:all )?depends\b",
            r"\bdoes(?: not|n't) (?:give|state|say|tell|specify|provide|mention)",
            r"\b(?:(?:could|can|would) you (?:please )?|please )"
            r"(?:tell|provide|give|clarify|specify|share|confirm|let)",
            r"\b(?:if|once|when|as soon as) you (?:can )?(?:tell|give|provide|let me know|share|specify|clarify)",
            r"\bno (?:single |definite |unique |such |one )?(?:value|answer|result|solution)"
            r" (?:that|can|is|exists|at all)\b",
            r"\b(?:both|two|either) (?:readings?|answers?|values?|interpretations?|results?) (?:is|are|seems?|remains?)"
            r" (?:equally )?(?:possible|valid|plausible|defensible|in use)",
        ]
    )
)
_EXEMPT = re.compile(r"[^.;]*?(?: but |, so (?!i\b|we\b))")
# Said once, it holds for the whole reply, unless an answer is stated all the same. Every branch begins with a letter.
_DECLINED = re.compile(
    r"(?:sorry|apologi[sz]e|i understand)\b[^.!?]{0,80}?\b(?:but|however)\b[^.!?]{0,60}?"
    r"\b(?:can't|cannot|can not|unable|not able|won't|do not feel|don't feel|against|not comfortable|must)\b"
    r"|(?:can't|cannot|won't|unable to|not able to) (?:do that|help with (?:that|this)|assist|discuss|engage|comply"
    r"|take part|provide (?:help|assistance))\b"
    r"|must decline\b|have to decline\b|i decline\b|against my (?:guide|polic|rules|principles)|not comfortable\b"
    r"|i (?:don't|do not) want to (?:contribute|take part|answer)\b"
)
_ERROR = re.compile(
    r"\W*(?:(?:fatal |internal |api |http )?error\b(?! of| in| was| bars?)[^.]*\Z|exception\b|traceback\b|<html"
    r"|<!doctype|http/?[\d.]* \d{3}\b)"
)
_FAILED = re.compile(
    r"rate limit (?:exceeded|reached)|request timed out|connection timed out|read timed out|error code:? \d"
    r"|internal server error|bad gateway|service unavailable|too many requests|cuda out of memory"
    r"|please try again (?:in|later)"
)
_ASKS = re.compile(
    r"\bhow (?:many|much|long|far|old|tall|often)\b|\bwhat (?:is|was|are|were|will)\b"
    r"|\A[\s*_#>-]*(?:which|who|whose|where|when|why)\b"
)
_SETS_A_TASK = re.compile(
    r"\A[\s*_#>-]*(?:find|determine|calculate|compute|evaluate|work out)\b[^=]*\Z"
    r"|\b(?:have|need|want|are asked|is) to (?:find|determine|calculate|compute|evaluate) [^=]*\Z"
)

_DOUBT = re.compile(
    r"\b(?:wait|actually|correction|sorry|oops|scratch that|on second thought|i (?:forgot|missed|overlooked)"
    r"|no(?=,? (?:wait|it|that|actually|\W*\d))|a mistake|an error|let me (?:correct|redo|fix|recalculate|recompute)"
    r"|should (?:\w+ )?(?:be|have been)|on reflection|i now (?:think|believe|say|see)|i(?:'ll| will| must| have to"
    r"| would|'d)? (?:now )?(?:change|revise|switch|update))\b"
)
_INSTEAD = re.compile(
    r"\b(?:should|it is|it's|that is|that's|makes|gives|instead|so|therefore|thus|becomes?|get|correct|actual|change"
    r"|revise|switch|update)\b|\b(?:no|wait|sorry|actually|i mean)\W+\d"
)
_WITHDRAWN = re.compile(
    r"[\s.!,*)\]}$\"]*+(?:no|wait|but|sorry|hmm)?+[\s,]*+(?:that|this|it|which)(?: answer)?(?: is|'s| was| seems)"
    r" (?:wrong|incorrect|not (?:right|correct)|a mistake|mistaken)"
)


def of_a_peer(low: str, place: int) -> bool:
    """Does the statement at `place` tell another agent's answer? Its clause, or a heading above it, decides."""
    if below_a_peers_name(low, place):
        return True
    start = max(0, place - 200)
    clause = max(low.rfind(mark, start, place) for mark in ".;:\n") + 1
    before = low[max(start, clause) : place]
    if not _PEER_SPEAKS.search(before):
        return False
    if _PEER_OWNS.search(before) or _AGAINST.search(before):
        return True
    # `Agent 2 is wrong, the answer is` ... is one's own again.
    return _OWN_VOICE.search(before) is None and _FAULTED.search(before) is None


def below_a_peers_name(low: str, place: int) -> bool:
    """Does the paragraph of `place` begin with a line like `Reply of agent 2:`?"""
    paragraph = max(0, place - 200, low.rfind("\n\n", max(0, place - 200), place))
    return _PEER_HEADING.match(low, paragraph, place) is not None


def about_peers(sentence: str) -> bool:
    """Does the sentence speak of other agents and draw nothing from it?"""
    if _PEER_SPEAKS.search(sentence) is None:
        return False
    return _OWN_VOICE.search(sentence) is None or _DISAGREES_ONLY.search(sentence) is not None


def supposed(low: str, place: int) -> bool:
    """Is what begins at `place` only supposed (`if the` ...)?"""
    return _SUPPOSED.search(low, max(0, place - 30), place) is not None


def supposing(low: str, place: int) -> bool:
    """Does the sentence of `place` begin with a supposition (`if`, `on this reading`)?"""
    start = max(0, place - 200)
    sentence = max(low.rfind(mark, start, place) for mark in ".\n;") + 1
    return _SUPPOSING.match(low, max(start, sentence), place) is not None


_SUPPOSING = re.compile(
    r"[\s*_>\"'“-]*(?:but |and |so )?(?:if\b|assuming\b|suppos(?:e|ing)\b|(?:on|in|under|by|with) (?:this|that"
    r"|the (?:\w+ )?(?:first|second|other|former|latter)) (?:\w+ )?(?:reading|interpretation|case|view|assumption"
    r"|sense|definition|hand)\b)"
)


def denied(low: str, start: int, place: int, end: int) -> bool:
    """Is what stands in low[place:end] denied by the words before it (`not 18`) or after it (`18 is wrong`)?"""
    before = _DENIED.search(low, max(start, place - 24), place)
    return before is not None or _REJECTED.match(low, end) is not None


def agrees_with(low: str, start: int, place: int) -> bool | None:
    """Is a value of another agent (`I agree with agent 2 (no)`) agreed with? None: no such words lead to it."""
    found = _AGREES.search(low, start, place)
    if found is None:
        return None
    return (
        found["how"] != "not"
        and not found["how"].startswith("dis")
        and not _NOT_BEFORE.search(low, start, found.start())
    )


_AGREES = re.compile(
    r"\b(?P<how>(?:dis)?agree\w*|side|not|and) with\s[^,.;:()]{0,40}[(:]\s*(?:answer|option|choice)?\s*[\"'(*]*\Z"
)
_NOT_BEFORE = re.compile(r"(?:\bnot|\bnever|n't)\s(?:\w+\s)?\Z")


def refused(sentence: str) -> bool:
    """Does the sentence refuse, miss information or ask back? `I cannot be sure, but ...` does not."""
    return any(not _EXEMPT.match(sentence, found.end()) for found in _REFUSED.finditer(sentence))


def declined(low: str, start: int) -> str:
    """Why a reply, from `start`, answers nothing at all: it declines, or is an error message. "": neither."""
    if _ERROR.match(low) or _FAILED.search(low, start):
        return "an error message"
    return "a refusal or a question back" if _DECLINED.search(low, start) else ""


def asks(sentence: str) -> bool:
    """Is the sentence, which ends with a question mark, a question to be solved (`how many`), not mere politeness?"""
    return _ASKS.search(sentence) is not None


def sets_a_task(sentence: str) -> bool:
    """Does the sentence only say what is to be found?"""
    return _SETS_A_TASK.search(sentence) is not None


def doubt_after(low: str, place: int) -> int | None:
    """Where, after a stated answer, a correction may begin."""
    found = _DOUBT.search(low, place)
    return found.start() if found else None


def puts_instead(sentence: str) -> bool:
    """Does a sentence after a doubt put something in the place of what was said?"""
    return _INSTEAD.search(sentence) is not None


def withdrawn(low: str, place: int) -> bool:
    """Is what ends at `place` taken back by the very next words?"""
    return _WITHDRAWN.match(low, place) is not None
