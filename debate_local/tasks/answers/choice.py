"""Read the option that a reply chooses: by its letter, its text or its value. Knows nothing of the task; never guesses.

A stated answer beats position, a correction beats it, and two options, a letter beyond the last one, exclusions alone,
options that are merely listed and values that no option has are no answer. A letter counts where it can only be an
option: `a` is an article, I a pronoun, vitamin C no choice. FORMAT asks for what the rule `answer` reads.

The rules in their order; `Answer.rule` names the one that matched; by text or by value, it says so in brackets:

  whole                  Nucleus
  boxed, hash, tag       \\boxed{\\text{D}}, #### D, <answer>D</answer>
  final answer, answer   Final answer: (D), the answer is D, {"answer": "D"}, 答案是D, the answer is the nucleus
  choice                 I choose D, going with D, the best option is D, 选D
  correction             The answer is C. No, wait, it is D.
  opening                D. As the temperature rises, ...
  lenient: verdict       D is correct. (D) Nucleus: correct.
  lenient: conclusion    ..., so D. It must be D. It is the nucleus.
  lenient: letter        ... in the nucleus (D).
  lenient: option        ATP is made in the nucleus.
"""

import re
from collections.abc import Sequence
from string import ascii_uppercase

from debate_local.core.transcript import Answer
from debate_local.tasks.answers import voice
from debate_local.tasks.answers.choice_cues import CUE, own_cue
from debate_local.tasks.answers.letters import latin, letters_at
from debate_local.tasks.answers.mentions import Named, manner, named_in, others
from debate_local.tasks.answers.number_choice import NumberText, stated
from debate_local.tasks.answers.number_prose import concluded
from debate_local.tasks.answers.option_lists import without_lists, without_speaker
from debate_local.tasks.answers.options import Options, options_of
from debate_local.tasks.answers.reply import Sentence, nothing_in, own_part, plain, sentences
from debate_local.tasks.answers.statements import (
    LENIENT_WINDOW,
    Found,
    Statement,
    box_before,
    corrected,
    last_words,
    settle_stated,
)

FORMAT = "End your reply with the letter of the option you choose, in brackets: the answer is (X)."


def read_choice(text: str, choices: Sequence[str], question: str = "") -> Answer:
    """The option a reply chooses. value and key are its capital letter.

    choices: the options' texts in the order A, B, ...; at most 26. question: what was asked, with or without its
    options; where the reply repeats it word for word, that part is not read.
    """
    if not 1 <= len(choices) <= len(LETTERS):
        raise ValueError(f"a question has 1 to {len(LETTERS)} options, got {len(choices)}")
    own = own_part(text, question)
    if not own:
        return Answer.none(nothing_in(text))
    return _Choice(latin(own), options_of(tuple(choices)), plain(question)).answer()


def same_choice(a: Answer, b: Answer) -> bool:
    """True when both are answers and the same option."""
    return a.key is not None and a.key == b.key


LETTERS = ascii_uppercase

_FILLERS = re.compile(
    r"(?:[\s*_\"'“”‘’`$:>#{}<(\[-]|\\[(\[]|\\[a-z]{2,10}\s?\{|\b(?:definitely|clearly|most likely|probably|likely"
    r"|therefore|thus|hence|so|then|simply|just|indeed|still|again|also|the|option|choice|letter|answer"
    r"|antwort|réponse|respuesta|risposta|resposta|ответ|statement|alternative|number|with|for|to be|be|both|either"
    r"|i think|i believe|i'd say|i would say|that|it|it's|is|are"
    r"|must be|should be|would be|yes|ok|okay|sure|la|le|die|der|das|el|opción|(?:a|la|der|a la|é a)? ?(?:letra"
    r"|lettre|lettera|buchstabe)|correct|best|right|one|final|my|of course|in (?:this|that) case)\b)*+"
)
_WRONG_ONE = re.compile(r"\b(?:incorrect|wrong|worst|least|false|tempting|another|other|common)\W+(?:\w+\W+)?\Z")
_ARTICLE = re.compile(r"(?:an?|the)\s+")
_TURN = re.compile(r"\b(?:but|however|actually|reflection|instead|rather|although|so|therefore|thus|hence)\b")
_REASON = re.compile(
    r",?\s*\b(?:because|since|as|which|where|when|if|for|but|not|rather than|instead of|unlike|while|though)\b|[;(]"
)
_LABEL_LIKE = re.compile(r"[\s*_\"']*[).:\]–—-][\s*_\"'(]*|\s*\(")
_TEXT_ENDS = re.compile(r"[\s)\]*_\"'”’`$}]*(?:\Z|[.,;:!\n(])")
_OPENING = re.compile(r"[\s*_\"'“`$(\[{#>]*+([A-Za-z])(?P<mark>[)\]*_\"'”`$}]*(?:[.):\],;]|\s[-–—]\s|\n|\Z))")
_IN_BRACKETS = re.compile(r"[(\[]\s*(?:option|choice|answer|letter)?\s*[*_]*\Z")
_IN_A_NAME = re.compile(r"\s+(?!(?:because|since|as|it|this)\b)[a-z]")
_LONGEST_OPENING = 300
_MARKUP = " \t\n*_`\"'$"
_CLOSER = re.compile(r"\b(?:hope (?:this|that)|let me know|thank|good luck|feel free)\b")


def _same(one: Named, other: Named) -> bool:
    return one.options == other.options


class _Choice:
    """One reply to one question."""

    def __init__(self, text: str, options: Options, question: str) -> None:
        self.reply = NumberText(without_speaker(without_lists(text, options), options))
        self.options = options
        self._question = question
        # Why a statement could not be read; what it held was no option, so that neither a text nor a value counts.
        self._unread = ""

    def answer(self) -> Answer:
        """The verdict."""
        found = (
            self._nothing_else()
            or settle_stated(self.reply, CUE, self._stated, self._last_words, own_cue, _same)
            or self._opening()
            or self._last_words(max(0, len(self.reply.text) - LENIENT_WINDOW), False)
        )
        if found is None:
            return Answer.none(self._unread or "no option")
        named = found.thing
        if named is None:
            return Answer.none(found.rule)
        letter = LETTERS[named.options[0]]
        return Answer(letter, letter, found.rule, (named.start, named.end))

    def _nothing_else(self) -> Found[Named] | None:
        """A reply that is the text of an option, word for word."""
        text = self.reply.text
        start = len(text) - len(text.lstrip(_MARKUP))
        option = self.options.at(text, start)
        if option is None or text[start + len(self.options.texts[option]) :].strip(_MARKUP + "."):
            return None
        # A single letter is an option's name.
        named = Named(start, start + len(self.options.texts[option]), (option,), False)
        return self._one("whole", named, len(text)) if named.end > start + 1 else None

    def _stated(self, statement: Statement) -> Found[Named] | None:
        low, start, end = self.reply.low, statement.start, statement.end
        if not statement.closed:
            return Found("cut off in a box")
        if _WRONG_ONE.search(low, max(0, statement.cue - 30), statement.cue):
            return None
        found = self._head(statement.rule, start, end)
        if found is None and statement.rule != "choice":
            found = self._within(statement)
        if statement.rule == "boxed" and found and found.thing and (before := box_before(self.reply, statement.cue)):
            earlier = self._head("boxed", *before)
            if earlier and earlier.thing and earlier.thing.options != found.thing.options:
                return Found("several boxes in one list")
        return found

    def _head(self, rule: str, start: int, end: int) -> Found[Named] | None:
        """The option that the stretch begins with, fillers apart."""
        named = self._at(start, end)
        return self._one(rule, named, end) if named else None

    def _at(self, start: int, end: int) -> Named | None:
        """What is named at the head of a stretch, by letter or by text; a text may go on behind the stretch."""
        text, place = self.reply.text, _after_fillers(self.reply.low, start, end)
        article = _ARTICLE.match(self.reply.low, place, end)
        group = letters_at(self.reply, place, end, len(self.options))
        beyond = group is not None and max(group.options) >= len(self.options)
        for mention in self.options.texts_in(text, start, min(len(text), place + self.options.longest)):
            if mention.start > (article.end() if article else place):
                break
            longer = group is None or (mention.end, -mention.start) > (group.end, -group.start)
            if mention.end > place and (longer or beyond):
                return None if self._unread else Named(mention.start, mention.end, (mention.option,), False)
        return Named(*group, True) if group else None

    def _one(self, rule: str, named: Named, end: int) -> Found[Named] | None:
        """The verdict on options named together: one that exists, or why there is no answer."""
        if len(set(named.options)) > 1:
            # All of them are the prompt's: `answer with A, B, C or D`.
            all_of_them = len(set(named.options)) > 2 and set(named.options) >= set(range(len(self.options)))
            return None if all_of_them else Found("several candidates")
        option = named.options[0]
        if option >= len(self.options):
            # The X of `the answer is (X)` is the prompt's.
            return None if LETTERS[option] == "X" else Found("a letter beyond the options")
        if option < 0:
            return Found("several options read like this")
        if not named.by_letter:
            return Found(f"{rule} (text)", named)
        behind = self._behind(named, end)
        return Found(rule, named) if behind in (None, option) else Found("letter and text disagree")

    def _behind(self, named: Named, end: int) -> int | None:
        """The option whose text or value follows a letter as its label: `B) Nucleus`, `(E) 2/9`."""
        text = self.reply.text
        # The closing bracket of `(B) Nucleus` belongs to what is named.
        gap = _LABEL_LIKE.match(text, named.start + 1, end)
        if gap is None:
            return None
        start = gap.end()
        written = self.options.at(text, start)
        if written is not None:
            return written
        limit = min(len(text), start + self.options.longest)
        found = [(t.end, t.option) for t in self.options.texts_in(text, start, limit) if t.start == start]
        # Read apart from the label, so that a minus is a sign: `(A) -16`.
        behind = NumberText(text[start : min(end, start + 40)])
        for numeral in behind.numerals(0, len(behind.text))[:1]:
            value = self.options.with_value(behind.low, numeral, 0, len(behind.text))
            if numeral.start == 0 and value is not None:
                found.append((start + numeral.end, value))
        return next((option for stop, option in found if _TEXT_ENDS.match(text, stop)), None)

    def _within(self, statement: Statement) -> Found[Named] | None:
        """An option somewhere in the stretch, by its text or value, or by letter where a verb leads to it."""
        rule, start, end = statement.rule, statement.start, statement.end
        sentence = Sentence(start, end, "")
        named_here = named_in(self.reply, self.options, start, end)
        said = [(named, manner(self.reply, sentence, named, -1, final=named.by_letter)) for named in named_here]
        chosen = [named for named, how in said if how in ("picked", "led")]
        if chosen:
            return self._one(rule, chosen[-1], end)
        texts = [named for named, how in said if not named.by_letter and how != "excluded"]
        if not texts and voice.refused(self.reply.low[start:end]):
            return Found("stated, but no option")
        if self._unread:
            return None
        reason = _REASON.search(self.reply.low, texts[0].end, end) if texts else None
        first = [named for named in texts if not reason or named.start < reason.start()]
        if len({named.options for named in first}) > 1:
            return None if statement.label else Found("several candidates")
        if first:
            return self._one(rule, first[0], end)
        return self._valued(statement) or self._fragment(statement)

    def _valued(self, statement: Statement) -> Found[Named] | None:
        """The option with the number that is stated."""
        if not self.options.quantities:
            return None
        start, end = statement.start, statement.end
        found = stated(self.reply, start, end, statement.rule)
        if found is None or found.thing is None:
            return None
        option = self.options.with_value(self.reply.low, found.thing, start, end)
        if option is None:
            self._unread = "no option has this value"
            return None
        return Found(f"{statement.rule} (value)", Named(found.thing.start, found.thing.end, (option,), False))

    def _fragment(self, statement: Statement) -> Found[Named] | None:
        """The option of whose text a part is stated and nothing else (the Golgi, for Golgi body)."""
        start, end = _after_fillers(self.reply.low, statement.start, statement.end), statement.end
        reason = _REASON.search(self.reply.low, start, end)
        end = reason.start() if reason else end
        option = self.options.fragment(self.reply.text, start, end)
        if option is None:
            if not statement.label:
                self._unread = "stated, but no option"
            return None
        return Found(f"{statement.rule} (text)", Named(start, end, (option,), False))

    def _opening(self) -> Found[Named] | None:
        """A reply that begins with an option's letter, as a label of all that follows."""
        text = self.reply.text
        opening = _OPENING.match(text)
        if opening is None:
            return None
        end = min(len(text), opening.end() + _LONGEST_OPENING)
        group = letters_at(self.reply, opening.start(1), end, len(self.options))
        if group is None or max(group.options) >= len(self.options) or self._lists_on(group.options[0], opening):
            return None
        sentence = next(sentences(text, opening.start(1), end))
        named = Named(*group, True)
        if self._behind(named, end) in named.options:
            return self._one("opening", named, end)
        if opening["mark"].endswith(".") and _IN_A_NAME.match(text, opening.end()):
            return None
        if manner(self.reply, sentence, named, named.start) not in ("whole", "picked"):
            return None
        return self._unless_otherwise(self._one("opening", named, end), opening["mark"].endswith(":"))

    def _unless_otherwise(self, found: Found[Named] | None, by_name: bool) -> Found[Named] | None:
        """The opening, unless it is corrected or the last words pick another option. by_name: `D:` may be a speaker."""
        if found is None or found.thing is None:
            return found
        better = corrected(self.reply, found, self._last_words)
        if better is None:
            start = max(found.thing.end, len(self.reply.text) - LENIENT_WINDOW)
            last = self._last_words(start, True)
            if last and last.thing and last.thing.options != found.thing.options:
                better = last if by_name else Found("several candidates")
        return better or found

    def _lists_on(self, option: int, opening: re.Match[str]) -> bool:
        """Does the next option follow, with a label alike? Then the options are gone through one by one."""
        following = re.compile(rf"(?:\n|[.;]\s)[\s*_>(\[-]*{LETTERS[(option + 1) % 26]}[)\].:*]*\s")
        return following.search(self.reply.text, opening.end()) is not None

    def _last_words(self, start: int, corrects: bool) -> Found[Named] | None:
        """The option that the last sentences arrive at. Only the very last may name it merely by text or value."""
        final = True
        for word in last_words(self.reply, start, self._question, means=self._means):
            if word.refusal:
                return Found(word.refusal)
            found = self._spoken(word.sentence, final, corrects)
            if found is not None:
                return found
            if not _CLOSER.search(self.reply.low, word.sentence.start, word.sentence.end):
                final = False
        return None

    def _means(self, sentence: Sentence) -> bool:
        """Is what reads like a refusal an option (`Cannot be determined`)?"""
        named = self.options.texts_in(self.reply.text, sentence.start, sentence.end)
        return any(voice.refused(self.options.texts[text.option].lower()) for text in named)

    def _spoken(self, sentence: Sentence, final: bool, corrects: bool) -> Found[Named] | None:
        """What one sentence says of the options."""
        head = self._at(sentence.start, sentence.end)
        begin = head.start if head else _after_fillers(self.reply.low, sentence.start, sentence.end)
        names = [
            named
            for named in named_in(self.reply, self.options, sentence.start, sentence.end)
            if not head or named.start >= head.end
        ]
        names = [head, *names] if head else names
        said = [(named, manner(self.reply, sentence, named, begin, final)) for named in names]
        if head and head.by_letter and self._behind(head, sentence.end) in head.options:
            said[0] = (head, "whole")
        chosen = [(named, how) for named, how in said if how in ("whole", "picked", "led")]
        if chosen:
            return self._of_several(chosen, sentence.end)
        excluded = {option for named, how in said if how == "excluded" for option in named.options}
        open_ = [named for named, how in said if how != "excluded" and not excluded.intersection(named.options)]
        if not final:
            return None
        if open_ and open_[-1].by_letter:
            return self._bracketed(open_, sentence)
        if self._unread or (corrects and not voice.puts_instead(self.reply.low[sentence.start : sentence.end])):
            return None
        return self._only_text(open_) or self._last_value(sentence)

    def _of_several(self, chosen: Sequence[tuple[Named, str]], end: int) -> Found[Named] | None:
        """The option that a sentence picks; the last one where it turns from one to another."""
        named, how = chosen[-1]
        if len({option for other, _ in chosen for option in other.options}) > 1 and len(chosen) > 1:
            before = chosen[-2][0]
            if not _TURN.search(self.reply.low, before.end, named.start):
                return Found("several candidates")
        return self._one("lenient: verdict" if how == "picked" else "lenient: conclusion", named, end)

    def _bracketed(self, named: Sequence[Named], sentence: Sentence) -> Found[Named] | None:
        """`... in the nucleus (D)`: a single letter in brackets at the end of the last sentence."""
        last = named[-1]
        in_brackets = _IN_BRACKETS.search(self.reply.low, max(sentence.start, last.start - 12), last.start)
        others = {option for other in named if other.by_letter for option in other.options}
        if not in_brackets or len(others) > 1 or not _TEXT_ENDS.match(self.reply.text, last.end, sentence.end):
            return None
        return self._one("lenient: letter", last, sentence.end)

    def _only_text(self, named: Sequence[Named]) -> Found[Named] | None:
        """The option that the last sentence names, when the reply names no other one."""
        texts = [name for name in named if not name.by_letter]
        if len({name.options for name in texts}) != 1 or not _TELLING.search(
            self.reply.text, texts[0].start, texts[0].end
        ):
            return None
        if others(self.reply.low, 0, texts[0].start):
            return None
        start = max(0, len(self.reply.text) - LENIENT_WINDOW)
        elsewhere = named_in(self.reply, self.options, start, len(self.reply.text))
        if any(name.options != texts[0].options for name in elsewhere):
            return None
        return self._one("lenient: option", texts[-1], texts[-1].end)

    def _last_value(self, sentence: Sentence) -> Found[Named] | None:
        """The option with the number that the last sentence arrives at."""
        found = concluded(self.reply, sentence) if self.options.quantities else None
        if found is None or found.thing is None:
            return None
        numeral = found.thing
        option = self.options.with_value(self.reply.low, numeral, sentence.start, sentence.end)
        if option is None:
            return Found("no option has this value")
        return Found(f"{found.rule} (value)", Named(numeral.start, numeral.end, (option,), False))


_TELLING = re.compile(r"[^\W\d_]{4}|\d")


def _after_fillers(low: str, start: int, end: int) -> int:
    fillers = _FILLERS.match(low, start, end)
    return fillers.end() if fillers else start
