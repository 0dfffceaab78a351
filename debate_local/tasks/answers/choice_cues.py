"""What leads to an option apart from the cues of every reader: `the best option is`, `I choose`. Knows no options."""

import re

from debate_local.tasks.answers import voice
from debate_local.tasks.answers.reply import OwnText
from debate_local.tasks.answers.statements import CUE_WORDS, Statement, link_after, stretch

# Branches by first letter are fast; that a word begins there, `own_cue` makes sure.
_NOUNS = [
    *[
        "option",
        "choice",
        "alternative",
        "selection",
        "pick",
        "vote",
        "guess",
        "verdict",
        "decision",
        "conclusion",
        "consensus",
    ],
    *["solution", "opción", "opcion", "opção", "opzione", "auswahl", "lösung", "вариант", "correct", "best", "closest"],
    *["right one", "most likely", "most appropriate", "most accurate", "most suitable", "most plausible"],
]
_VERBS = [
    *["choose", "choosing", "chose", "pick", "picked", "picking", "select", "selected", "selecting", "prefer", "keep"],
    *["keeping", "maintain", "maintaining", "go with", "go for", "going with", "going for", "went with", "opt for"],
    *["opting for", "vote for", "voting for", "stick with", "sticking with", "stay with", "staying with", "settle on"],
    *["settling on", "settle for", "lean towards", "leaning towards", "lean toward", "leaning toward"],
    *["wähle", "elijo", "escolho", "choisis", "scelgo"],
]
_LATER_LETTERS: dict[str, list[str]] = {}
for _word in _NOUNS + _VERBS:
    _LATER_LETTERS.setdefault(_word[0], []).append(_word[1:])
CUE = re.compile(
    "|".join(
        [CUE_WORDS, "选项", "選択肢", "选择?", "選"]
        + [rf"{first}(?:{'|'.join(rest)})\b" for first, rest in _LATER_LETTERS.items()]
    )
)
# A cue that is a noun as well (`my pick is B`) is a verb where an option follows it.
_CHOOSES = frozenset(["选", "选择", "選", *_VERBS])
_LINKED = re.compile(r"\s+(?:is|was|remains|would be|stays)\b|\s?:")
_ADJECTIVES = ("correct", "best", "closest", "most", "right")
_NAMES_ONE = re.compile(r"\s*[(\[*]*[a-hj-z][)\]*.:]*(?:\s|\Z)")
_NO_NOUN_LINK = re.compile(r"[,;]|\b(?:because|since|as|which|if|but|while)\b")
_OWN_SUBJECT = re.compile(
    r"(?:^|[.;:,\n(*_>-]|\b(?:i|we|i'd|i'll|i'm|we'd|we'll|we're|let's|let me|us|me|will|would|should|must|shall"
    r"|therefore|so|thus|hence|and|now|still|again|finally|also|then|to|am|have|had|ich|yo|eu|je|best)|[^\W\d_a-zé])"
    r"[\s*_]*\Z"
)
_OTHER_SUBJECT = re.compile(
    r"(?:\b(?:not|never|people|students?|you|agents?|many|some|others?|they|he|she|if|could|might|may|mistakes?|errors?"
    r"|tempt\w+|wrong)|n't|不)\b[^.;:,]*\Z"
)


def own_cue(reply: OwnText, cue: re.Match[str]) -> Statement | None:
    """What `the best option is` and `I choose` lead to. The option must follow at once."""
    low = reply.low
    if cue.start() and low[cue.start() - 1].isalpha() and low[cue.start()].isascii():
        return None
    if cue.group() in _CHOOSES and not (cue.group() == "pick" and _LINKED.match(low, cue.end())):
        before = low[max(0, cue.start() - 60) : cue.start()]
        if _OTHER_SUBJECT.search(before) or not _OWN_SUBJECT.search(before):
            return None
        after = cue.end()
    else:
        link = link_after(reply, cue.end())
        if link is None or link["direct"] is not None or voice.supposed(low, cue.start()):
            return None
        filler = link["filler"]
        by_label = not link["verb"] and cue.group().startswith(_ADJECTIVES)
        if by_label or _NAMES_ONE.match(filler) or _NO_NOUN_LINK.search(filler):
            return None
        after = link.end()
    sentence = stretch(reply, after)
    return Statement("choice", cue.start(), after, sentence.end) if sentence else None
