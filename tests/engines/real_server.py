"""A real vLLM behind its OpenAI server, on 127.0.0.1. Knows how it is started and ended, not what it is asked."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Both the server and vLLM's engine process outlive a parent that is killed. So a guard runs above them, in a process
# group of their own: when the server ends, is told to end, or the tests are gone, nothing of the group is left.
_GUARD = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: None)  # the server's own matter: it ends politely, and then we do
server = subprocess.Popen(sys.argv[2:])
while os.getppid() == int(sys.argv[1]) and server.poll() is None:
    time.sleep(0.2)
os.killpg(0, signal.SIGTERM)
try:
    server.wait(10)
finally:
    os.killpg(0, signal.SIGKILL)
"""
_LONGEST_START = 300.0


@dataclass(frozen=True)
class Server:
    """A server that was started, and may not answer yet. url: its base URL. log: all that it says."""

    url: str
    log: Path
    guard: subprocess.Popen[bytes]

    def ready(self) -> str:
        """Wait until it answers; its base URL. Raises RuntimeError when it does not start."""
        # Whatever proxy is set, it is not for this machine itself.
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        health = self.url.removesuffix("/v1") + "/health"
        deadline = time.monotonic() + _LONGEST_START
        while self.guard.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), direct.open(health, timeout=5):
                return self.url
            time.sleep(0.5)
        tail = self.log.read_text(encoding="utf-8", errors="replace")[-3000:]
        raise RuntimeError(f"vLLM's server did not start; the end of its log:\n{tail}")


@contextlib.contextmanager
def serving(folder: str | Path, log: Path, *arguments: str) -> Iterator[Server]:
    """A server of this model folder; it takes most of a minute to be ready. Ended on leaving.

    arguments: more of them, as vLLM's command line has them.
    """
    port = _free_port()
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(folder), "--served-model-name", "served", "--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", "2048", "--max-num-batched-tokens", "8192", "--no-enable-chunked-prefill"),
        *("--kv-cache-memory-bytes", str(1 << 30), "--gpu-memory-utilization", "0.1", "--enforce-eager"),
        *arguments,
    ]
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    environment = {**os.environ, "VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as said:
        guard = subprocess.Popen(
            [sys.executable, "-c", _GUARD, str(os.getpid()), *command],
            stdout=said,
            stderr=said,
            env=environment,
            start_new_session=True,
        )
    try:
        yield Server(f"http://127.0.0.1:{port}/v1", log, guard)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(guard.pid, signal.SIGTERM)
        guard.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
