"""Every known fault of this field that has been dealt with has a test, marked `hazard`, of the right behaviour."""

import ast
from pathlib import Path

TESTS = Path(__file__).parent
# Parts of the list of faults whose every row is dealt with: letter -> number of rows.
FINISHED: dict[str, int] = {"A": 48, "B": 27, "C": 30, "D": 29}


def test_every_row_of_a_finished_part_has_a_test() -> None:
    marked = {id for file in TESTS.rglob("test_*.py") for id in _marked(file)}
    missing = [
        f"{part}{number:02}"
        for part, rows in FINISHED.items()
        for number in range(1, rows + 1)
        if f"{part}{number:02}" not in marked
    ]
    assert not missing, f"no test is marked hazard for: {', '.join(missing)}"


def _marked(file: Path) -> set[str]:
    """The ids in `pytest.mark.hazard(...)` anywhere in a file."""
    return {
        argument.value
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _name(node.func) == "hazard"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def _name(function: ast.expr) -> str:
    """`hazard` of `pytest.mark.hazard`, and of a name that stands for it."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
