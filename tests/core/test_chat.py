"""Requests, their identity, completions and the split of reasoning. Run: pytest tests/core/test_chat.py"""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.core.chat import (
    ChatRequest,
    Completion,
    Message,
    Sampling,
    SplitReply,
    derive_seed,
    digest,
    marks_reasoning,
    opens_reasoning,
    request_key,
    split_reasoning,
    with_seed,
)
from tests.fakes import request

ANY_TEXT = st.text(st.characters(exclude_categories=[]))


def key(asked: ChatRequest) -> str:
    return request_key(asked, "engine")


def test_the_key_knows_neither_id_nor_priority() -> None:
    assert key(request("hello", id="1")) == key(replace(request("hello", id="2"), priority=-3))


@pytest.mark.parametrize(
    "other",
    [
        request("hello!"),
        request("hello", seed=2),
        request("hello", seed=None),
        request("hello", temperature=0.3),
        request("hello", top_p=0.9),
        request("hello", top_k=5),
        request("hello", min_p=0.1),
        request("hello", presence_penalty=0.5),
        request("hello", frequency_penalty=0.5),
        request("hello", repetition_penalty=1.1),
        request("hello", max_tokens=5),
        request("hello", stop=("\n",)),  # type: ignore[arg-type]
        replace(request("hello"), prefill="Sure"),
        replace(request("hello"), schema={"type": "object"}),
        replace(request("hello"), template_args={"enable_thinking": False}),
        replace(request("hello"), logprobs=True),
        replace(request("hello"), messages=(Message("system", "hello"),)),
        replace(request("hello"), messages=(Message("user", "hel"), Message("user", "lo"))),
    ],
)
def test_everything_that_can_change_a_reply_is_in_the_key(other: ChatRequest) -> None:
    assert key(other) != key(request("hello"))


def test_another_engine_identity_is_another_key() -> None:
    assert request_key(request("hello"), "a") != request_key(request("hello"), "b")


def test_a_greedy_request_has_no_seed_in_its_key() -> None:
    assert key(request("hello", seed=1, temperature=0.0)) == key(request("hello", seed=2, temperature=0.0))
    assert with_seed(Sampling(temperature=0.0), 7).seed is None
    assert with_seed(Sampling(temperature=0.01), 7).seed == 7


def test_equal_numbers_are_one_key_however_they_are_written() -> None:
    assert key(request("hello", temperature=1, top_p=1)) == key(request("hello", temperature=1.0, top_p=1.0))


def test_the_order_of_arguments_in_a_mapping_is_not_content() -> None:
    one = replace(request("hello"), template_args={"a": 1, "b": 2})
    other = replace(request("hello"), template_args={"b": 2, "a": 1})
    assert key(one) == key(other)


@given(ANY_TEXT)
@settings(deadline=None)
def test_a_key_can_be_made_of_any_text(text: str) -> None:
    assert len(bytes.fromhex(key(request(text)))) == 16


def test_the_key_and_the_seed_are_the_same_in_every_version() -> None:
    # A change here makes every stored completion unreachable.
    assert key(request("hello")) == "9d1c7a81e296cba02fe9b27e1a61ac41"
    assert derive_seed(0, "gsm8k-1", 2, 1) == 755326299


@pytest.mark.hazard("B03")
def test_a_seed_has_31_bits_and_differs_by_everything_that_it_knows() -> None:
    seeds = {
        derive_seed(seed, item, agent, round, step)
        for seed in range(3)
        for item in ("a", "b", "1", "11")
        for agent in range(5)
        for round in range(5)
        for step in ("", "judge")
    }
    assert len(seeds) == 3 * 4 * 5 * 5 * 2
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_the_digest_does_not_depend_on_key_order() -> None:
    assert digest({"a": 1, "b": [1, None]}) == digest({"b": [1, None], "a": 1}) != digest({"a": 1, "b": [1, 0]})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -1.0),
        ("max_tokens", 0),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 3.0),
        ("top_k", -2),
    ],
)
def test_sampling_that_cannot_be_is_refused_by_name_and_value(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"sampling\.{field} must be between .* got {value!r}"):
        Sampling(**{field: value})  # type: ignore[arg-type]


@pytest.mark.hazard("A45")
def test_a_stop_that_is_one_string_is_refused() -> None:
    # It would stop at every single letter of it.
    with pytest.raises(ValueError, match="must be a list of strings"):
        Sampling(stop="Question")  # type: ignore[arg-type]


def test_none_means_the_models_own_default_and_is_allowed_everywhere() -> None:
    sampling = Sampling(temperature=None, top_p=None, top_k=None, min_p=None, repetition_penalty=None)
    assert not sampling.greedy


COMPLETIONS = st.builds(
    Completion,
    text=ANY_TEXT,
    reasoning=ANY_TEXT,
    raw=ANY_TEXT,
    finish_reason=st.sampled_from(["stop", "length", "too_long", "error"]),
    prompt_tokens=st.integers(0, 10**6),
    generated_tokens=st.integers(0, 10**6),
    cached_prompt_tokens=st.integers(0, 10**6),
    logprobs=st.none() | st.lists(st.tuples(ANY_TEXT, st.floats(max_value=0, allow_nan=False))).map(tuple),
    error=st.none() | ANY_TEXT,
    clipped=st.booleans(),
    neutralised=st.integers(0, 9),
    notes=st.lists(ANY_TEXT).map(tuple),
    stop_reason=ANY_TEXT,
    prompt_hash=ANY_TEXT,
)


@given(COMPLETIONS)
@settings(deadline=None)
def test_a_completion_survives_json_unchanged(completion: Completion) -> None:
    assert Completion.from_json(completion.to_json()) == completion


def test_unknown_fields_of_a_stored_completion_are_an_error_not_a_loss() -> None:
    with pytest.raises(TypeError, match="mood"):
        Completion.from_json(json.dumps({"text": "hi", "mood": "good"}))


def test_only_an_engine_error_counts_as_failed() -> None:
    assert Completion.failure("out of memory").failed
    assert not Completion.failure("4000 tokens, context 2048", "too_long").failed
    assert not Completion("cut of", finish_reason="length").failed


@pytest.mark.hazard("A15", "A16")
@pytest.mark.parametrize(
    ("raw", "text", "reasoning"),
    [
        ("The answer is 24.", "The answer is 24.", ""),
        ("if 2 < 3 then <b>yes</b>", "if 2 < 3 then <b>yes</b>", ""),
        # The answer within the reasoning is not the reply's; the opening tag may be the template's.
        ("<think>42?</think> The answer is 24.", "The answer is 24.", "42?"),
        ("is it 42?\n</think>\nD", "D", "is it 42?"),
        ("<think>\n\n</think>\n\nD", "D", ""),
        ("<THINK>42?</THINK>24", "24", "42?"),
        ("<thinking>42?</thinking>24", "24", "42?"),
        ("<reasoning>42?</reasoning>24", "24", "42?"),
        # A thought that was cut off is no reply.
        ("<think>so 35, then", "", "so 35, then"),
        ("<think>", "", ""),
        ("The answer is 5. <think>or is it 7", "", "or is it 7"),
        # Several blocks, and blocks in blocks.
        ("<think>a</think>first <think>b</think>second", "first second", "a\nb"),
        ("<think>a</think>24<think>b", "", "a\nb"),
        ("a</think>b</think>24", "24", "a\nb"),
        ("<think>a <think>b</think> c</think>24", "24", "a <think>b\nc"),
        ("<think>a</thinking>24", "24", "a"),
        # Mistral, Seed-OSS, Cohere, Gemma 4.
        ("[THINK]42?[/THINK]24", "24", "42?"),
        ("42?[/THINK]24", "24", "42?"),
        ("[THINK]so 35, then", "", "so 35, then"),
        ("<seed:think>42?</seed:think>24", "24", "42?"),
        ("<|START_THINKING|>42?<|END_THINKING|><|START_RESPONSE|>24<|END_RESPONSE|>", "24", "42?"),
        ("<|channel>thought\n42?<channel|>24", "24", "42?"),
        ("<|START_RESPONSE|>24<|END_RESPONSE|>", "24", ""),
        ("I [think] so, [INST]", "I [think] so, [INST]", ""),
        ("", "", ""),
    ],
)
def test_reasoning_is_told_from_the_reply(raw: str, text: str, reasoning: str) -> None:
    split = split_reasoning(raw)
    assert split.text == text
    assert split.reasoning == reasoning


ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"
COMMENTARY = "<|start|>assistant<|channel|>commentary<|message|>"


@pytest.mark.hazard("A16", "A17")
@pytest.mark.parametrize(
    ("raw", "text", "reasoning"),
    [
        (f"{ANALYSIS}42?<|end|>{FINAL}24<|return|>", "24", "42?"),
        # Whatever ends a reply is not in what engines hand out.
        (f"{ANALYSIS}42?<|end|>{FINAL}24", "24", "42?"),
        ("<|channel|>final<|message|>24", "24", ""),
        (f"{ANALYSIS}a<|end|><|start|>assistant{ANALYSIS}b<|end|>{FINAL}24", "24", "a\nb"),
        (f"{ANALYSIS}if 2 < 3, [/INST]<|end|>{FINAL}so 2 < 3", "so 2 < 3", "if 2 < 3, [/INST]"),
        ("<|channel|>final <|constrain|>json<|message|>{}", "{}", ""),
        # A thought that was cut off, within it or within the header that follows.
        (f"{ANALYSIS}so 35, then", "", "so 35, then"),
        (f"{ANALYSIS}42?<|end|>", "", "42?"),
        (f"{ANALYSIS}42?<|end|><|start|>assistant<|channel|>fi", "", "42?"),
        ("<|channel|>anal", "", ""),
        (f"{ANALYSIS}a<|end|>{COMMENTARY}I look it up.<|end|><|start|>assistant{ANALYSIS}or", "", "a\nor"),
        # What is said to the reader counts, what is said to a tool does not, nor what a tool is made to say.
        (f"{ANALYSIS}a<|end|>{COMMENTARY}I add.<|end|>{FINAL}24", "I add.\n24", "a"),
        ("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>", "", "{}"),
        (" to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "", "{}"),
        (f"<|start|>functions.f to=assistant<|channel|>commentary<|message|>7<|end|>{FINAL}24", "24", ""),
        # An invented next turn.
        (f"{FINAL}5<|end|><|start|>user<|message|>And?<|end|>{FINAL}14", "5", ""),
        # The tokens left out by decoding.
        ("analysisWe need 42?assistantfinal24", "24", "We need 42?"),
        ("analysis42?assistantanalysisMoreassistantcommentary to=functions.f{}assistantfinal24", "24", "42?\nMore\n{}"),
        ("analysisWe need to add", "", "We need to add"),
        ("analysis of the sum: 24", "analysis of the sum: 24", ""),
        ("analysisResult = 24", "analysisResult = 24", ""),
        # A tag is one in any channel.
        (f"{FINAL}<think>42?</think>24", "24", "42?"),
    ],
)
def test_channels_of_gpt_oss_are_told_apart(raw: str, text: str, reasoning: str) -> None:
    assert split_reasoning(raw) == SplitReply(text, reasoning)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("still thinking about 35", ""),
        (f"42?<|end|>{FINAL}24", "24"),
        ("42?assistantfinal24", "24"),
        ("42?[/THINK]24", "24"),
        ("42?</think>24", "24"),
        ("<think>42?</think>24", "24"),
        ("", ""),
    ],
)
def test_a_prompt_that_ends_inside_reasoning_makes_unclosed_text_reasoning(raw: str, text: str) -> None:
    assert split_reasoning(raw, opened=True).text == text


@pytest.mark.parametrize(
    ("tokens", "marks"),
    [
        (
            "<think> </THINKING> [THINK] [/THINK] <|channel|> <|message|> <|START_RESPONSE|> <channel|> </seed:think>",
            True,
        ),
        ("<|im_start|> <|end|> [INST] <b> think <|endoftext|> <tool_call>", False),
    ],
)
def test_tokens_that_mark_reasoning_are_known_to_engines(tokens: str, marks: bool) -> None:
    assert [marks_reasoning(token) for token in tokens.split()] == [marks] * len(tokens.split())


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [
        ("How many?<|im_end|>\n<|im_start|>assistant\n<think>\n", True),
        ("How many?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("How many?[/INST][THINK]", True),
        ("How many?[/INST]", False),
        ("<|start|>user<|message|>How many?<|end|><|start|>assistant", False),
        ("<|message|>How many?<|end|><|start|>assistant<|channel|>analysis<|message|>", True),
        ("<|message|>How many?<|end|><|start|>assistant<|channel|>final<|message|>", False),
    ],
)
def test_a_prompt_that_opens_reasoning_is_known_by_its_end(prompt: str, opens: bool) -> None:
    assert opens_reasoning(prompt) == opens


@given(ANY_TEXT.filter(lambda text: "<" not in text and "[" not in text and not text.startswith("analysis")))
@settings(deadline=None)
def test_text_without_tags_is_left_alone(text: str) -> None:
    assert split_reasoning(text) == SplitReply(text, "")


TAGS = ["<think>", "</think>", "<reasoning>", "</reasoning>", "[THINK]", "[/THINK]"]


@given(st.lists(st.sampled_from([*TAGS, "a", " ", "\n"])).map("".join), st.booleans())
@settings(deadline=None)
def test_no_tag_is_ever_left_in_a_reply(raw: str, opened: bool) -> None:
    text = split_reasoning(raw, opened).text
    assert not any(tag in text for tag in TAGS)


@given(
    st.lists(st.sampled_from([ANALYSIS, FINAL, "<|end|>", "<|return|>", "<|start|>assistant", *TAGS, "a", "\n"])),
    st.booleans(),
)
@settings(deadline=None)
def test_no_mark_of_a_channel_is_ever_left_in_a_reply(pieces: list[str], opened: bool) -> None:
    text = split_reasoning(ANALYSIS + "".join(pieces), opened).text
    assert not any(mark in text for mark in (*TAGS, "<|channel|>", "<|message|>", "<|end|>", "analysis", "final"))


@given(st.lists(st.sampled_from(["a", "b", " <", "[", "1", "\n"]), min_size=1).map("".join), st.booleans())
@settings(deadline=None)
def test_a_channels_split_does_not_depend_on_who_wrote_its_first_header(thought: str, opened: bool) -> None:
    raw = f"{thought}<|end|>{FINAL}24"
    assert split_reasoning(raw if opened else ANALYSIS + raw, opened) == SplitReply("24", thought.strip())
