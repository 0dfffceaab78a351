"""How many of a sweep's requests are sent: agents 1..5 x rounds 1..4, scripted engine."""

import json
import tempfile

import debate_local
from tests.bench.harness import keep


def main() -> None:
    """Counts, not times."""
    with tempfile.TemporaryDirectory() as folder:
        sweep = debate_local.run(
            ["engine=scripted", "task=arithmetic", "limit=10", "controls=false", f"output={folder}",
             "protocol.agents=1,2,3,4,5", "protocol.rounds=1,2,3,4"],
            multirun=True,
        )  # fmt: skip
        naive = sum(len(run.turns) for run in sweep.runs)
        events = next((sweep.folder / "logs").glob("*.jsonl")).read_text().splitlines()
    sent = json.loads(events[-1])["sent"]
    keep("sharing", {"items": 10, "naive": naive, "sent": sent, "summary": f"{sent / 10:g} of {naive / 10:g} an item"})
