"""What the progress bar prints of a sweep's events where there is no terminal."""

from dataclasses import asdict

import pytest

from debate_local.commands.progress import ProgressBar
from debate_local.engines.memory import GIB
from debate_local.engines.pool import Switch


@pytest.mark.parametrize(
    ("switch", "said"),
    [
        (Switch(("a",), ("b",), None, None), "switch: a closed; loading b ..."),
        (
            Switch(("a", "c"), ("b",), 2 * GIB, 9 * GIB),
            "switch: a, c closed; free memory 2.0 GiB -> 9.0 GiB; loading b ...",
        ),
        (
            Switch(("c",), ("b",), 2 * GIB, 9 * GIB, slept=("a",), woken=True),
            "switch: a put to sleep; c closed; free memory 2.0 GiB -> 9.0 GiB; waking b ...",
        ),
        (Switch((), ("a",), None, 7 * GIB, woken=True), "switch: waking a ..."),
    ],
)
def test_a_switch_says_who_made_room_and_who_is_opened(
    switch: Switch, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ProgressBar()({"event": "switch", "engine": "vllm", **asdict(switch)})
    assert " ".join(capsys.readouterr().err.split()) == said
