"""How sure an agent is, as numbers. Run: pytest tests/core/test_confidence.py"""

import pytest

from debate_local.core.chat import ChatRequest, Completion, Message, Sampling
from debate_local.core.confidence import answer_logprob, mean_logprob, rescaled, stated, without_confidence
from debate_local.core.setting import Agent, Setting
from debate_local.core.transcript import Answer, Turn
from debate_local.core.voting import votes_of
from tests.fakes import Sums
from tests.protocols.scene import CONFIDENCE, read_confidence


@pytest.mark.parametrize(
    ("said", "weight"),
    [
        # The boundaries of Chen et al.'s released code.
        (1.0, 1.0),
        (0.99, 0.8),
        (0.9, 0.8),
        (0.89, 0.5),
        (0.8, 0.5),
        (0.79, 0.3),
        (0.61, 0.3),
        (0.6, 0.1),
        (0.3, 0.1),
        (0.0, 0.1),
    ],
)
def test_a_stated_confidence_is_rescaled_as_published(said: float, weight: float) -> None:
    assert rescaled(said) == weight


def test_zero_is_a_confidence_and_a_missing_one_is_none() -> None:
    assert stated(Answer("0", "0", "confidence")) == 0.0
    assert stated(Answer.none("words")) is None
    assert stated(None) is None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Answer: 3\nConfidence: 0.8", "Answer: 3"),
        ("Answer: 3\n**Confidence: 0.8**\nThat is all.", "Answer: 3\nThat is all."),
        ("Confidence: 0.8\nAnswer: 3", "\nAnswer: 3"),
        ("Answer: 3, Confidence: 0.8", "Answer: 3, Confidence: [withheld]"),
        (
            "I am sure. My confidence is high: Confidence: 0.8 of course",
            "I am sure. My confidence is high: Confidence: [withheld] of course",
        ),
        ("Answer: 3", "Answer: 3"),
    ],
)
def test_a_text_without_its_confidence_keeps_all_else(text: str, left: str) -> None:
    assert without_confidence(text, read_confidence(text)) == left


def completion(*pieces: str, text: str | None = None) -> Completion:
    """A completion whose n-th token has the log-probability -n."""
    logprobs = tuple((piece, -float(number)) for number, piece in enumerate(pieces))
    return Completion("".join(pieces) if text is None else text, logprobs=logprobs)


@pytest.mark.parametrize(
    ("done", "span", "mean"),
    [
        (completion("It", " is", " 4", "2", "."), (6, 8), -2.5),
        # A token that holds more than the answer counts, too.
        (completion("It is", " 42."), (6, 8), -1.0),
        # Reasoning before the text, the same number in it, and a token of the template after.
        (completion("<think>", "42", "</think>", "It is ", "42", "<end>", text="It is 42"), (6, 8), -4.0),
        # The prefill is in the text, but no token was generated for it.
        (completion(" is", " 42", text="It is 42"), (6, 8), -1.0),
        # An answer in the prefill has no tokens.
        (completion(", of course", text="42, of course"), (0, 2), None),
        # Pieces that are half a letter each, before the answer and after it.
        (completion("\ufffd", "\ufffd", " 42", text="é 42"), (2, 4), -2.0),
        (completion("42 ", "\ufffd", "\ufffd", text="42 é"), (0, 2), None),
        (completion("It is 42"), None, None),
        (Completion("It is 42"), (6, 8), None),
    ],
)
def test_an_answers_log_probability_is_the_mean_over_its_tokens(
    done: Completion, span: tuple[int, int] | None, mean: float | None
) -> None:
    assert answer_logprob(done, Answer("42", "42", "stated", span)) == mean


def test_a_turns_log_probability_is_the_mean_over_all_tokens_or_unknown() -> None:
    assert mean_logprob(completion("a", "b", "c")) == -1.0
    assert mean_logprob(Completion("a")) is None
    assert mean_logprob(Completion("a", logprobs=())) is None
    assert mean_logprob(Completion("a", logprobs=(("a", float("-inf")),))) is None


def test_votes_hold_what_each_turn_says_of_its_confidence() -> None:
    setting = Setting(Sums(), (Agent(),), confidence=CONFIDENCE).asking_confidence()
    item = Sums().items()[0]
    asked = ChatRequest("0.0", "default", (Message("user", "?"),), Sampling())
    done = Completion(
        "Answer: 3\nConfidence: 0.7", logprobs=(("Answer: ", -1.0), ("3", -0.5), ("\nConfidence: 0.7", -3.0))
    )
    turn = setting.turn(item, 0, 0, asked, done)
    aside = Turn(0, 0, asked, done, Answer.none("a summary"), role="summariser", step="summary")
    (vote,) = votes_of([aside, turn])
    assert (vote.verbal, vote.logprob, vote.answer_logprob) == (0.7, -1.5, -0.5)
    with pytest.raises(ValueError, match="nothing reads confidences here"):
        Setting(Sums()).asking_confidence()


def test_a_number_that_is_a_confidence_is_never_taken_for_the_answer() -> None:
    class LastNumber(Sums):
        def read(self, text: str, item: object) -> Answer:
            words = [word for word in text.split() if word.replace(".", "").isdigit()]
            place = text.rfind(words[-1])
            return Answer(words[-1], words[-1], "last number", (place, place + len(words[-1])))

    setting = Setting(LastNumber(), confidence=CONFIDENCE).asking_confidence()
    asked = ChatRequest("0.0", "default", (), Sampling())
    turn = setting.turn(Sums().items()[0], 0, 0, asked, Completion("I get 42 here\nConfidence: 0.7"))
    assert (turn.answer.value, turn.answer.span) == ("42", (6, 8))
