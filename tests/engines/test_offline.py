"""A model of the hub that is in the local cache: found without asking the hub, at the commit that was asked for."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.engines.tiny import save_tiny

pytestmark = pytest.mark.slow

pytest.importorskip("huggingface_hub")

SHA, OTHER = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def hub_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hub's local cache, with the model lab/small at one commit."""
    cache = tmp_path_factory.mktemp("hub")
    model = cache / "models--lab--small"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(SHA)
    (model / "snapshots" / SHA).mkdir(parents=True)
    save_tiny(model / "snapshots" / SHA)
    return cache


@pytest.fixture
def hub() -> Iterator[tuple[str, list[str]]]:
    """A hub that has nothing: its address, and what it was asked for."""
    asked: list[str] = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_error(404)

        do_HEAD = do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def python(code: str, hub_cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: the hub's client reads its variables once."""
    proxies = {name for name in os.environ if name.lower().endswith("_proxy")}
    clean = {name: value for name, value in os.environ.items() if name not in proxies}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, "HF_HUB_CACHE": str(hub_cache), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


ANSWER = """
from debate_local.engines.hf import hf
from tests.engines.asking import answers, asking
engine = hf("lab/small", dtype="float32", device="cpu")
print(answers(engine, [asking("a", temperature=0.0)])["a"].generated_tokens)
engine.close()
"""


@pytest.mark.hazard("B17")
@pytest.mark.parametrize("offline", ["0", "1"])
def test_a_cached_model_answers_and_the_hub_is_never_asked(
    hub_cache: Path, hub: tuple[str, list[str]], offline: str
) -> None:
    address, asked = hub
    done = python(ANSWER, hub_cache, HF_ENDPOINT=address, HF_HUB_OFFLINE=offline)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
    assert asked == []


IDENTITY = """
import json
from debate_local.engines.hf import hf
from debate_local.engines.vllm import vllm
print(json.dumps([make("lab/small", revision).identity["default"]
    for make in (hf, vllm) for revision in (None, "main", %r)]))
"""


@pytest.mark.hazard("B18")
def test_results_are_stored_under_the_commit_whatever_name_it_was_asked_by(hub_cache: Path) -> None:
    done = python(IDENTITY % SHA, hub_cache, HF_HUB_OFFLINE="1")
    found = json.loads(done.stdout)
    assert {(identity["model"], identity["revision"]) for identity in found} == {("lab/small", SHA)}
    assert found[:3] == [found[0]] * 3 and found[3:] == [found[3]] * 3


@pytest.mark.hazard("B17", "B18")
@pytest.mark.parametrize("offline", ["0", "1"])
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_revision_that_is_not_there_is_refused_before_anything_loads(
    hub_cache: Path, hub: tuple[str, list[str]], tmp_path: Path, command: str, offline: str
) -> None:
    address, asked = hub
    model = ["engine=hf", "engine.model=lab/small", f"engine.revision={OTHER}"]
    words = [command, *model, "task=arithmetic", "limit=1", f"output={tmp_path / 'runs'}"]
    code = f"import sys; from debate_local.cli import main; sys.exit(main({words}))"
    done = python(code, hub_cache, HF_ENDPOINT=address, HF_HUB_OFFLINE=offline)
    assert done.returncode == 2
    assert f"revision {OTHER} is not in the hub's local cache" in " ".join(done.stderr.split())
    assert bool(asked) == (offline == "0")
    assert not (tmp_path / "runs").exists()


LOST = """
from debate_local.engines.weights import resolve
resolve("lab/small")
"""


@pytest.mark.hazard("B17")
def test_a_file_that_is_missing_from_the_cache_is_named(hub_cache: Path, tmp_path: Path) -> None:
    for file in (hub_cache / "models--lab--small").rglob("*"):
        copy = tmp_path / file.relative_to(hub_cache)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.is_file() and file.suffix != ".safetensors":
            copy.write_bytes(file.read_bytes())
    done = python(LOST, tmp_path, HF_HUB_OFFLINE="1")
    assert "without *.safetensors" in done.stderr and "HF_HUB_OFFLINE forbids fetching it" in done.stderr
