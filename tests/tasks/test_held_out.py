"""How well the readers do on replies that no rule was written for.

`held_out/` was written by somebody who had not seen the readers, after they were done: two cases for each kind. Do not
mend a reader after one of them; that is what `cases/` is for. The share says what to expect of replies nobody has seen.
"""

import json
from pathlib import Path

from tests.tasks.graded_cases import assert_read_as_expected

HELD_OUT = Path(__file__).parent / "held_out"
SHARE = 0.97


def test_nearly_all_held_out_replies_are_read_as_a_careful_person_does() -> None:
    cases = [json.loads(line) for file in sorted(HELD_OUT.glob("*.jsonl")) for line in file.open(encoding="utf-8")]
    wrong = []
    for case in cases:
        try:
            assert_read_as_expected(case)
        except AssertionError:
            wrong.append(case["id"])
    assert len(cases) == 402
    assert 1 - len(wrong) / len(cases) >= SHARE, wrong
