"""Names and options come from signatures, and a wrong one is answered with the right ones."""

import pytest

from debate_local.sweep import options
from debate_local.sweep.compose import compose
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import make_plan

pytestmark = pytest.mark.slow


def fault(*overrides: str, multirun: bool = False) -> str:
    with pytest.raises(OptionFault) as caught:
        compose(["engine=scripted", *overrides], multirun)
    return str(caught.value)


def test_every_option_of_every_kind_has_a_default_that_its_type_allows() -> None:
    for kind in options.KINDS:
        assert options.names(kind)
        for name in options.names(kind):
            assert options.check(kind, name, {}).keys() == options.options(kind, name).keys()


def test_an_unknown_name_is_answered_with_the_nearest_and_all_valid_ones_with_defaults() -> None:
    message = fault("protocol=debat")
    assert "there is no protocol 'debat'. Did you mean 'debate'?" in message
    assert "protocol=debate  (agents=3, rounds=2, topology=full, " in message
    assert "protocol=self_consistency  (samples=3, " in message


def test_an_unknown_preset_lists_the_presets() -> None:
    message = fault("task=arithmetic_du")
    assert "there is no task 'arithmetic_du'" in message
    assert "arithmetic_du2023_text" in message


def test_an_unknown_option_is_answered_with_the_options_of_the_chosen_name() -> None:
    message = fault("protocol=self_consistency", "protocol.sampels=4")
    assert "protocol 'self_consistency' has no option 'sampels'. Did you mean 'samples'?" in message
    assert "protocol.samples=3  (a whole number)" in message


def test_an_unknown_option_of_a_preset_is_answered_with_the_options_of_what_it_extends() -> None:
    assert "task 'arithmetic' has no option 'opernads'. Did you mean 'operands'?" in fault(
        "task=arithmetic_du2023", "task.opernads=3"
    )


def test_an_unknown_setting_lists_the_settings() -> None:
    assert "there is no setting 'limt'. Did you mean 'limit'?" in fault("limt=3")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("protocol.agents=three", "protocol.agents must be a whole number, got 'three'"),
        ("protocol.agents=2.5", "protocol.agents must be a whole number, got 2.5"),
        ("protocol.prompt=medium", "protocol.prompt must be one of: short, long, got 'medium'"),
        ("protocol.prompt=null", "protocol.prompt must be one of: short, long, got None"),
        ("limit=0", "limit must be at least 1, or null for all items; got 0"),
        ("limit=many", "limit"),
        ("offset=-1", "offset must be 0 or more, got -1"),
        ("schedule=random", "schedule must be one of: rounds, continuous, got 'random'"),
        ("cache=maybe", "cache must be one of: on, read, off, got 'maybe'"),
        ("max_live=0", "max_live must be at least 1, got 0"),
        ("sampling.temperature=-1", "sampling.temperature must be between 0 and 100, got -1"),
        ("sampling.max_tokens=0", "sampling.max_tokens must be between 1"),
        ("sampling.top_p=0", "sampling.top_p must be between"),
        ("sampling.stop=Question", "sampling.stop must be a list, got 'Question'"),
        ("+sampling.seed=3", "sampling.seed cannot be set"),
        ("cast=[]", "cast must be a list of one or more agents"),
        ("cast=[{persona_text: x}]", "cast[0] has no option 'persona_text'. Did you mean 'persona'?"),
        ("cast=[{sampling: {temprature: 1}}]", "cast[0].sampling has no option 'temprature'"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_valid(override: str, says: str) -> None:
    assert says in fault(override)


def test_commas_without_m_are_explained() -> None:
    message = fault("protocol.agents=1,3")
    assert "add -m" in message


def test_a_dotted_name_loads_a_protocol_from_the_users_own_package(tmp_path, monkeypatch) -> None:
    package = tmp_path / "my_lab"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "devil.py").write_text(
        "from debate_local.core.protocol import protocol\n"
        "from debate_local.core.setting import Setting\n"
        "from debate_local.core.transcript import Debate, Item\n"
        "from debate_local.protocols.debate import debate\n\n\n"
        "@protocol(calls=lambda heat, **_: 2 * heat, agents=None)\n"
        "def devil(item: Item, setting: Setting, *, heat: int = 2) -> Debate:\n"
        "    return debate(item, setting, agents=2, rounds=heat)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    cells, _ = compose(["engine=scripted", "protocol=my_lab.devil", "protocol.heat=3"])
    assert cells[0].protocol.options == {"heat": 3}
    assert "protocol.heat must be a whole number" in fault("protocol=my_lab.devil", "protocol.heat=x")
    assert "cannot be imported" in fault("protocol=my_lab.angel")
    assert "has no option 'hat'. Did you mean 'heat'?" in fault("protocol=my_lab.devil", "protocol.hat=1")


def test_what_is_no_protocol_or_no_whole_task_is_told_what_it_lacks(tmp_path, monkeypatch) -> None:
    package = tmp_path / "their_lab"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plain.py").write_text("def plain(item, setting):\n    yield []\n")
    (package / "caps.py").write_text("class C:\n    name = 'c'\n\n\ndef caps(n: int = 1):\n    return C()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "is no protocol: decorate it with @protocol(...)" in fault("protocol=their_lab.plain")
    cells, _ = compose(["engine=scripted", "task=their_lab.caps"])
    with pytest.raises(OptionFault, match="lacks metric, votable, answer_format, items, ask, read, same, score, grade"):
        make_plan(cells)


def test_a_wording_that_shows_no_replies_is_told(tmp_path) -> None:
    cells, _ = compose(["engine=scripted", "prompt.debate=Others say hi"])
    (note,) = [note for note in make_plan(cells).notes if note.startswith("prompt.")]
    assert "prompt.debate shows nothing of a debate" in note and "replies" in note
    shown, _ = compose(["engine=scripted", "prompt.debate='Others say: {{ replies }}'"])
    assert not [note for note in make_plan(shown).notes if note.startswith("prompt.")]


def test_a_multirun_makes_one_cell_a_combination() -> None:
    cells, _ = compose(
        ["engine=scripted", "protocol.agents=1,3", "protocol.rounds=1,2", "sampling.temperature=0.3,1.0"], multirun=True
    )
    found = {
        (c.protocol.options["agents"], c.protocol.options["rounds"], c.cast[0].sampling.temperature) for c in cells
    }
    assert found == {(a, r, t) for a in (1, 3) for r in (1, 2) for t in (0.3, 1.0)}


def test_what_does_not_change_a_result_is_not_swept() -> None:
    assert "they are not swept" in fault("schedule=rounds,continuous", multirun=True)


def test_sampling_model_leaves_every_field_to_the_model() -> None:
    cells, _ = compose(["engine=scripted", "sampling=model"])
    sampling = cells[0].cast[0].sampling
    assert sampling.temperature is None and sampling.top_p is None and sampling.repetition_penalty is None


def test_cast_members_change_only_what_they_name() -> None:
    cells, _ = compose(["engine=scripted", "cast=[{}, {persona: 'Be terse, please.', sampling: {temperature: 0}}]"])
    first, second = cells[0].cast
    assert (first.persona, first.sampling.temperature) == ("", 1.0)
    assert (second.persona, second.sampling.temperature) == ("Be terse, please.", 0.0)
    assert second.sampling.max_tokens == first.sampling.max_tokens


def test_composing_works_inside_a_hydra_program_and_in_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from hydra import initialize
    from hydra.core.global_hydra import GlobalHydra

    with initialize(version_base="1.3", config_path=None):
        cells, _ = compose(["engine=scripted", "protocol.agents=4"])
        assert cells[0].protocol.options["agents"] == 4
        assert GlobalHydra.instance().is_initialized()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: compose(["engine=scripted", f"protocol.agents={n}"])[0][0], range(1, 9)))
    assert [cell.protocol.options["agents"] for cell in found] == list(range(1, 9))
