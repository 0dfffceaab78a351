"""Read yes, no, or that neither can be said, out of a model's reply. Knows nothing of the task, and never guesses.

A stated answer beats position, a correction beats it. Only a word of its own counts: not the `no` of know or of
`no rule`, not the yes of eyes. `Yes and no`, `yes/no`, refusals and what other agents say are no answer. FORMAT asks
for what the rule `answer` reads.

The rules in their order; `Answer.rule` names the one that matched:

  boxed, hash, tag       \\boxed{yes}, #### no, <answer>True</answer>
  final answer, answer   Final answer: no, so the answer is yes, {"answer": false}, die Antwort ist nein
  correction             Yes. Wait, the bridge is older, so no.
  opening                No, because eyes cannot hear.
  lenient: conclusion    ..., so yes. I say no. The statement is false.
  lenient: label         It is (not) consistent with the facts. The award is not mentioned.
"""

import re
from typing import NamedTuple

from debate_local.core.transcript import Answer
from debate_local.tasks.answers import voice
from debate_local.tasks.answers.reply import OwnText, Sentence, nothing_in, own_part, plain, sentences
from debate_local.tasks.answers.statements import (
    CUE_WORDS,
    LENIENT_WINDOW,
    Found,
    Statement,
    corrected,
    last_words,
    link_after,
    settle_stated,
    stretch,
)

FORMAT = 'End your reply with "The answer is" and one word, yes or no.'


def read_yes_no(text: str, question: str = "", uncertain: bool = False) -> Answer:
    """The answer `yes` or `no` of a reply, true and false and the words of other languages included.

    question: what was asked; where the reply repeats it word for word, that part is not read. uncertain: that it cannot
    be said is an answer too, `uncertain`; otherwise it is none.
    """
    own = own_part(text, question)
    if not own:
        return Answer.none(nothing_in(text))
    found = _YesNo(own, plain(question), uncertain).found()
    if found is None or found.thing is None:
        return Answer.none(found.rule if found else "neither yes nor no")
    said = found.thing
    if said.word == "uncertain" and not uncertain:
        return Answer.none("uncertain")
    return Answer(said.word, said.word, found.rule, (said.start, said.end))


class _Said(NamedTuple):
    """`yes`, `no` or `uncertain`, said at [start, end). judges: by a word that says so of something (true, wrong)."""

    start: int
    end: int
    word: str
    judges: bool = False


_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORDS = {
    "yes": "yes yeah yep yup ja jawohl oui sí sì sim да evet tak igen kyllä ναι نعم हाँ 是 是的 对 對 はい 예 네",
    "no": "no nope nah nein non não нет hayır nie nej nee nem ei όχι لا नहीं 不 不是 不对 不對 否 いいえ 아니요 아니오",
    "uncertain": "uncertain unsure unknown unclear undecided undetermined indeterminate inconclusive",
}
_JUDGEMENTS = {
    "yes": "true correct right vrai wahr richtig verdadero verdadeiro vero correcto 正确 正しい",
    "no": "false incorrect wrong untrue faux falsch falso incorrecto неверно 错误 間違い",
}
_MEANING = {
    word: answer for table in (_JUDGEMENTS, _WORDS) for answer, words in table.items() for word in words.split()
}
_JUDGING = frozenset(word for words in _JUDGEMENTS.values() for word in words.split())
_ANY = re.compile(
    rf"(?<![^\W{_CJK}])(?<![-是])(?:{'|'.join(sorted(_MEANING, key=len, reverse=True))})(?![^\W{_CJK}]|-\w|'\w)"
)
# Behind the word: the end, a mark, or the words of a reason. `No rule`, `true crabs` and `No. 5` are something else.
_FREE = re.compile(
    r"[\s)\]}*_\"'”’`$\\>]*(?:\Z|[,;:!?\n(–—/|{<→。、]|\.(?!\s?\d)|-(?!\w)|->|(?:because|since|as|it|he|she|they|this"
    r"|that|there|i|we|you|but|although|though|given|due|and|or|in (?:this|that|my)|from me|here|yes|no|for|if"
    r"|instead|overall|indeed|weil|denn|parce|car|porque|perché|потому)\b)"
)
_OR = r"[\s*_\"'`]*(?:/|\||,?\s+(?:or|and|und|oder|et|ou|y|o)\s|,)[\s*_\"'`]*"
_CHOICE_OF = re.compile(
    rf"\b(?:yes{_OR}(?:no|maybe|uncertain)|no{_OR}(?:yes|uncertain)|true{_OR}false"
    rf"|false{_OR}true)\b(?:{_OR}(?:\w+)(?=\W))?"
)
_DENIED = re.compile(
    r"(?:\b(?:not|never|neither|nor|rather than|instead of|isn't|wasn't|cannot be|can't be)|n't(?: be| say)?)\s+"
    r"(?:(?:a|an|the|simply|necessarily|clear|definite|actually|entirely|really|strictly|say|be)\s+)*[\"'*_]*\Z"
)
_FILLERS = re.compile(
    r"(?:[\s*_\"'“”‘’`$:>#{<(\[,.-]|\\[(\[]|\\[a-z]{2,10}\s?\{|\b(?:definitely|clearly|most likely|probably|likely"
    r"|therefore|thus|hence|so|then|simply|just|indeed|still|again|also|well|ok|okay|sure|hmm|oh|and|that|it|is|it's"
    r"|that's|a|an|the|i think|i believe|i say|i'd say|i would say|my|final|answer|resounding|clear|definite"
    r"|no (?:problem|doubt(?: about it)?)|in short|overall|of course|obviously|actually|not uncertain|short answer"
    r"|you know what)\b\??)*+"
)
_LED = re.compile(
    r"(?:\b(?:so|thus|therefore|hence|it's|that's|is|was|be|say|said|answer|choose|reply|respond|think|believe"
    r"|guess|conclude|with|vote|to|at|but"
    r"|actually|wait|sorry|rather|instead|i mean|then|as|remains|stays|ja|daher|also|donc|luego|所以|因此)"
    r"|[:→>–—-])[\s,:*_\"'`(]*(?:(?:it|that|this|the answer) (?:is|must be|would be) |it's |a |an |clear |definite "
    r"|definitely |clearly )*[*_\"'(]*\Z"
)
_JUDGED = re.compile(
    r"(?:\b(?:it|this|that|which|statement|claim|assertion|premise|proposition|sentence|conclusion|hypothesis|above"
    r"|answer|fact)\b[^.;:\n]{0,80}\b(?:is|are|was|seems|must be|would be|has to be|be|'s)|\bit's|\bthat's|\b(?:so"
    r"|thus|therefore|hence)|[:→])\s+(?:(?:therefore|thus|hence|definitely|clearly|indeed|simply|most likely|probably"
    r"|in fact|actually|also|not|n't)\s+)*[*_\"']*\Z"
)
# Both answers in the prompt's words: `say "the answer is yes" or "the answer is no"`.
_OFFERED = re.compile(
    r"[\"'“][^\"'“”\n]{0,30}?(?:yes|true)[.\"'”]{1,2}\s+or\s+(?:with )?[\"'“][^\"'“”\n]{0,30}?(?:no|false)[.\"'”]{1,2}",
    re.IGNORECASE,
)
_LAST = re.compile(r",[\s*_\"'`]*\Z")
_OTHERS = re.compile(
    r"\b(?:people|many|some|one might|may|might|could|at first|initially|first glance|if|whether|sense|sometimes"
    r"|used to|on the one hand)\b"
)
_TURN = re.compile(
    r"\b(?:but|however|actually|reflection|instead|rather|so|therefore|thus|hence|stays|remains|change\w*)\b|->|→"
)
_FOR = re.compile(r"[\s*_\"']*(?:for|in|if|when)\b")
_LONGEST_OPENING = 300
# A sentence that says it more often is a loop.
_MOST_SAID = 8
_LABELS = (
    (
        "uncertain",
        re.compile(
            r"(?:\bnot|n't|\bnever)\s+(?:\w+\s+)?(?:mention\w*|state[ds]?|specif\w+|say|address\w*|given|provided"
            r"|discussed|covered|included|clear|certain|sure|occur)\b|\b(?:no|without|neither a?) (?:mention"
            r"|information|evidence|indication|confirmation|statement|data)\b|\b(?:uncertain|unsure|unclear|unknown"
            r"|unverifiable|inconclusive|silent|n/a)\b|\b(?:cannot|can't) (?:be )?(?:\w+ly )?(?:say|said|tell|told"
            r"|determine\w*|verif\w+|confirm\w*|know\w*)\b|\bnot enough\b|\bneither (?:confirms?|supports?)"
        ),
    ),
    (
        "no",
        re.compile(
            r"\b(?:inconsistent|incompatible|at odds|contradict(?:s|ed|ory|ion)?|conflicts?)\b"
            r"|(?:\bnot|n't)\s+(?:\w+ly\s+)?(?:consistent|match|agree|accurate|supported|in line|compatible)\b"
        ),
    ),
    (
        "yes",
        re.compile(r"\b(?:consistent|in line|agrees?|match(?:es)?|supported|supports|confirm(?:s|ed)|compatible)\b"),
    ),
)
_NEGATION = re.compile(r"\b(?:no|not|nothing|neither|nor|never|without)\b|n't\b")


def _as_said(word: re.Match[str]) -> _Said:
    return _Said(word.start(), word.end(), _MEANING[word.group()], word.group() in _JUDGING)


def _same(one: _Said, other: _Said) -> bool:
    return one.word == other.word


class _YesNo:
    """One reply to a yes/no question. labels: do `consistent` and `not mentioned` answer, too?"""

    def __init__(self, text: str, question: str, labels: bool) -> None:
        self.reply = OwnText(_OFFERED.sub(lambda offer: " " * len(offer.group()), text))
        self._question = question
        self._labels = labels

    def found(self) -> Found[_Said] | None:
        """The verdict."""
        stated = settle_stated(self.reply, _CUE, self._stated, self._last_words, _own_cue, _same)
        return stated or self._opening() or self._last_words(max(0, len(self.reply.text) - LENIENT_WINDOW), False)

    def _stated(self, statement: Statement) -> Found[_Said] | None:
        rule, start, end = statement.rule, statement.start, statement.end
        if not statement.closed:
            return Found("cut off in a box")
        head = self._head(start, end)
        if head is not None:
            return Found(rule, head)
        if _CHOICE_OF.search(self.reply.low, start, end):
            return Found("both")
        chosen = self._chosen(start, end)
        if chosen:
            return self._last_of(chosen, rule)
        label = self._label(start, end)
        if label:
            return Found(rule, label)
        return Found("stated, but neither yes nor no") if voice.refused(self.reply.low[start:end]) else None

    def _said(self, start: int, end: int) -> list[_Said]:
        """Every yes, no and uncertain in low[start:end] that is a word of its own, outside `yes or no`."""
        low = self.reply.low
        pairs = [pair.span() for pair in _CHOICE_OF.finditer(low, start, end)]
        return [
            _as_said(word)
            for word in _ANY.finditer(low, start, end)
            if _FREE.match(low, word.end(), end) and not any(a <= word.start() < b for a, b in pairs)
        ]

    def _head(self, start: int, end: int) -> _Said | None:
        """The word that the stretch begins with, fillers apart."""
        low = self.reply.low
        fillers = _FILLERS.match(low, start, end)
        word = _ANY.match(low, fillers.end() if fillers else start, end)
        if word is None or not _FREE.match(low, word.end(), end) or _CHOICE_OF.match(low, word.start(), end):
            return None
        return _as_said(word)

    def _chosen(self, start: int, end: int) -> list[_Said]:
        """The words that low[start:end] arrives at: at its head, after `so`, `is` or a colon, as a judgement."""
        low, head = self.reply.low, self._head(start, end)
        found = [head] if head else []
        for said in self._said(head.end if head else start, end)[-_MOST_SAID:]:
            if head and not head.judges and (said.judges or said.word == "uncertain"):
                # `Yes, the year is right` is not a second answer.
                continue
            before = max(start, said.start - 120)
            if said.word == "uncertain" and _NEGATION.search(low, before, said.start):
                continue
            agreement = voice.agrees_with(low, before, said.start)
            if agreement is not None:
                found += [said] if agreement else []
                continue
            if self._of_others(start, said.start):
                continue
            if _DENIED.search(low, before, said.start):
                alone = low[start : said.start].strip(" *_") == "not"
                if said.judges and said.word == "yes" and (alone or _JUDGED.search(low, before, said.start)):
                    found.append(said._replace(word="no"))
            elif said.judges:
                if _JUDGED.search(low, before, said.start):
                    found.append(said)
            elif _LED.search(low, before, said.start) or (
                _LAST.search(low, before, said.start) and not self.reply.low[said.end : end].strip(" .!*_")
            ):
                found.append(said)
        return found

    def _of_others(self, start: int, place: int) -> bool:
        low = self.reply.low
        clause = max(start, *(low.rfind(mark, start, place) + 1 for mark in ",;:"))
        return _OTHERS.search(low, clause, place) is not None

    def _last_of(self, chosen: list[_Said], rule: str) -> Found[_Said]:
        """The last of the words, when they agree or turn from one to the other."""
        last = chosen[-1]
        before = [said for said in chosen if said.word != last.word]
        if before and not _TURN.search(self.reply.low, before[-1].end, last.start):
            return Found("both")
        return Found(rule, last)

    def _opening(self) -> Found[_Said] | None:
        """A reply that begins with its answer; none when its last words say the opposite."""
        all_sentences = sentences(self.reply.text, 0, min(len(self.reply.text), _LONGEST_OPENING))
        first = next((sentence for sentence in all_sentences if sentence.mark != "?"), None)
        if first is None:
            return None
        said = self._chosen(first.start, first.end)
        if not said or said[0] != self._head(first.start, first.end):
            return None
        found = self._last_of(said, "opening")
        if found.thing and self._split_by_case(found.thing, first.end):
            return Found("both")
        better = corrected(self.reply, found, self._last_words)
        if better or found.thing is None:
            return better or found
        last = self._last_words(max(first.end, len(self.reply.text) - LENIENT_WINDOW), False)
        opposite = last and last.thing and last.thing.word not in (found.thing.word, "uncertain")
        return Found("both") if opposite else found

    def _split_by_case(self, said: _Said, end: int) -> bool:
        """`Yes for adults, no for children`."""
        opposite = [other for other in self._said(said.end, end) if other.word not in (said.word, "uncertain")]
        return any(_FOR.match(self.reply.low, other.end, end) for other in (said, *opposite)) if opposite else False

    def _last_words(self, start: int, corrects: bool) -> Found[_Said] | None:
        """What the last sentence that has an answer says."""
        final = True
        for word in last_words(self.reply, start, self._question, means=self._means):
            begin, end = word.sentence.start, word.sentence.end
            if word.refusal:
                label = self._label(begin, end) if final else None
                return Found("lenient: label", label) if label else Found(word.refusal)
            chosen = self._chosen(begin, end)
            if chosen:
                return self._last_of(chosen, "lenient: conclusion")
            if final and _CHOICE_OF.search(self.reply.low, begin, end):
                return Found("both")
            if final and not corrects and (label := self._label(begin, end)):
                return Found("lenient: label", label)
            final = False
        return None

    def _means(self, sentence: Sentence) -> bool:
        return bool(self._chosen(sentence.start, sentence.end))

    def _label(self, start: int, end: int) -> _Said | None:
        """`Consistent`, `contradicts it`, `not mentioned`: what a judge of facts says instead, undenied."""
        if not self._labels:
            return None
        for word, pattern in _LABELS:
            if found := pattern.search(self.reply.low, start, end):
                denied = _NEGATION.search(self.reply.low, start, found.start())
                return None if denied and word != "uncertain" else _Said(found.start(), found.end(), word)
        return None


_CUE = re.compile(rf"{CUE_WORDS}|verdict|conclusion|decision|judge?ment|fazit|urteil")


def _own_cue(reply: OwnText, cue: re.Match[str]) -> Statement | None:
    """`My verdict is no`, `Conclusion: yes`: a label, behind which a whole sentence may follow."""
    link = link_after(reply, cue.end())
    sentence = stretch(reply, link.end()) if link and link["direct"] is None else None
    return Statement("answer", cue.start(), sentence.start, sentence.end, label=True) if sentence else None
