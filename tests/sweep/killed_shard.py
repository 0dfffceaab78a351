"""A worker to be killed: it says in a shared byte which phase it is in, and dawdles there at random.

`python -m tests.sweep.killed_shard SWEEP SHARD PHASE_FILE SEED`; see `killed.py`.
"""

import sys

from tests.sweep.killed import mark_phases


def main(folder: str, shard: str, phase_file: str, seed: int) -> None:
    """Run one shard with its phases marked."""
    from debate_local.cli import main as run

    mark_phases(phase_file, seed)
    sys.exit(run(["work", folder, "--shard", shard]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
