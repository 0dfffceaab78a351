"""Whose word a stretch of a reply is, and whether it is meant: other agents, refusals, suppositions, corrections.

Knows nothing of numbers or letters. All texts are lower case (`reply.lower`); a position is a place in them.
"""

import re

# Word problems have estate agents and participants of their own: a number or `other` makes one a debater.
_PEER = (
    r"(?:(?:agent|solver|expert|participant|debater|solution|response|reply|model)\s*#?\d+|peers?"
    r"|(?:other|another|first|second|third|both|one|two|all|previous)(?:\s+other)?\s+"
    r"(?:agent|peer|solver|solution|response|replie|debater|expert)s?|(?:agent|response)s\b(?=.{0,40}\b(?:say|agree|answer))"
    r"|the others)"
)
_PEER_SPEAKS = re.compile(
    rf"\b{_PEER}\b|\btheir (?:final )?answers?\b|\banother (?:says|claims|gets|got|thinks)\b|\baccording to (?!the)"
)
_PEER_OWNS = re.compile(rf"\b(?:{_PEER}(?:'s|')|their)\s+(?:\w+\s+)?\Z")
_OWN_VOICE = re.compile(r"\b(?:my|i|we|so|therefore|thus|hence|right|correct|agree|based|considering|given)\b")
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
    r"\b(?:cannot|can't|can not|could not|couldn't|unable to|not possible to|impossible to)\s+(?:be\s+)?(?:\w+ly\s+)?"
    r"(?:determine|calculate|solve|answer|find|found|compute|know|help|work|give|tell|provide|assist|say)"
    r"|\b(?:not enough|insufficient|more|missing) (?:information|data|detail|context)"
    r"|\b(?:i|we)(?:'m| am| are)? (?:would need|will need|need (?:the|to know|more)|don't know|do not know|not sure)"
    r"|\bis (?:missing|unknown|undefined|indeterminate|not (?:given|stated|known|provided|specified))"
    r"|\brather not\b|\bdoes(?: not|n't) (?:give|state|say|tell|specify|provide|mention)"
    r"|\b(?:(?:could|can|would) you (?:please )?|please )(?:tell|provide|give|clarify|specify|share|confirm|let)"
)
_ASKS = re.compile(r"\bhow (?:many|much|long|far|old|tall|often)\b|\bwhat (?:is|was|are|were|will)\b")

_DOUBT = re.compile(
    r"\b(?:wait|actually|correction|sorry|oops|scratch that|on second thought|i (?:forgot|missed|overlooked)"
    r"|no(?=,? (?:wait|it|that|actually|\W*\d))|a mistake|an error"
    r"|let me (?:correct|redo|fix|recalculate|recompute)|should (?:\w+ )?(?:be|have been))\b"
)
_INSTEAD = re.compile(
    r"\b(?:should|it is|it's|that is|that's|makes|gives|instead|so|therefore|thus|becomes?|get|correct|actual)\b"
    r"|\b(?:no|wait|sorry|actually|i mean)\W+\d"
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


def denied(low: str, start: int, place: int, end: int) -> bool:
    """Is what stands in low[place:end] denied by the words before it (`not 18`) or after it (`18 is wrong`)?"""
    before = _DENIED.search(low, max(start, place - 24), place)
    return before is not None or _REJECTED.match(low, end) is not None


def refused(sentence: str) -> bool:
    """Does the sentence refuse, miss information or ask back? `I cannot be sure, but ...` does not."""
    found = _REFUSED.search(sentence)
    return found is not None and " but " not in sentence[found.end() :]


def asks(sentence: str) -> bool:
    """Is the sentence, which ends with a question mark, a question to be solved (`how many`), not mere politeness?"""
    return _ASKS.search(sentence) is not None


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
