"""Whole conversations are word for word those in tests/golden/. Run: pytest tests/protocols/test_golden.py"""

from pathlib import Path

import pytest

from tests.protocols.golden import FOLDER, scenes

SCENES = list(scenes())


@pytest.mark.parametrize(("path", "text"), [scene[1:] for scene in SCENES], ids=[scene[0] for scene in SCENES])
def test_a_conversation_is_word_for_word_what_people_have_read(path: Path, text: str) -> None:
    assert path.exists(), "python -m tests.protocols.golden writes it; read it against the papers before you keep it"
    assert text == path.read_text(encoding="utf-8")


def test_no_file_is_left_of_a_scene_that_is_gone() -> None:
    assert set(FOLDER.rglob("*.txt")) == {path for _, path, _ in SCENES}
