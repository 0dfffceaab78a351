"""What a server that takes no further fields would not be told is said before the run. No server is asked."""

import pytest

from debate_local.sweep.compose import compose
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import Plan, make_plan

SERVER = ("engine=openai", "engine.model=m", "engine.context_length=4096", "engine.extra_fields=off")


def plan(*overrides: str) -> Plan:
    cells, _ = compose(["task=arithmetic", "limit=1", "controls=false", *overrides])
    return make_plan(cells)


def left_out(found: Plan) -> list[str]:
    return [note for note in found.notes if "extra_fields=off" in note]


def test_neutral_values_that_are_not_sent_are_noted_once() -> None:
    (note,) = left_out(plan(*SERVER, "protocol.agents=3", "cast=[{}, {persona: Be brief.}]"))
    assert "does not send top_k=0, min_p=0, repetition_penalty=1" in note
    assert "generation_config.json" in note


@pytest.mark.parametrize(
    "overrides",
    [
        ("engine.extra_fields=on",),
        ("sampling.top_k=null", "sampling.min_p=null", "sampling.repetition_penalty=null"),
    ],
)
def test_nothing_is_noted_where_nothing_is_left_out(overrides: tuple[str, ...]) -> None:
    assert left_out(plan(*SERVER, *overrides)) == []


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("sampling.top_k=5", r"cast\[0\]: engine\.extra_fields=off cannot send top_k=5"),
        ("cast=[{}, {sampling: {min_p: 0.1}}]", r"cast\[1\]: engine\.extra_fields=off cannot send min_p=0\.1"),
        ("cast=[{template_args: {enable_thinking: false}}]", r"cannot send template_args \(enable_thinking\)"),
    ],
)
def test_values_that_would_fail_every_request_are_refused_before_the_run(override: str, said: str) -> None:
    with pytest.raises(OptionFault, match=said):
        plan(*SERVER, override)
