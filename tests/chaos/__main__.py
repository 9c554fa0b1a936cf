"""`python -m tests.chaos`, called by `make chaos`: every fault that a cluster must survive, by seed."""

import argparse
import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

from tests import versions
from tests.chaos.campaign import Campaign
from tests.chaos.faults import BROKER_FULL, FAULTS, NODE_FULL, NODES_CUT_OFF, REFUSED_TO_ONE, UPGRADED
from tests.chaos.firewall import can_block
from tests.chaos.history import History
from tests.chaos.scene import scene

BROKERS = NODES = 3


def main() -> int:
    """Run for some minutes; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long faults strike (5)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the same seed gives the same faults")
    parser.add_argument(
        "--faults", nargs="*", choices=FAULTS, default=list(FAULTS), metavar="FAULT", help="these alone"
    )
    parser.add_argument("--directory", type=Path, default=Path("data/chaos"), help="of the runs (data/chaos)")
    chosen = parser.parse_args()
    directory = (chosen.directory / f"{chosen.seed}-{time.strftime('%H%M%S')}").absolute()
    # The files contain the audio of sessions, as in the data directory.
    os.umask(0o077)
    directory.mkdir(parents=True)
    history_file = directory / "history.jsonl"
    print(f"seed {chosen.seed}, history {history_file}", flush=True)
    earlier = _earlier(directory / "earlier") if UPGRADED in chosen.faults else None
    with History(history_file) as history, scene(directory, NODES, BROKERS, earlier) as stage:
        there = {
            UPGRADED: stage.earlier,
            BROKER_FULL: stage.broker_disk,
            NODE_FULL: stage.node_disk,
            **dict.fromkeys((REFUSED_TO_ONE, NODES_CUT_OFF), can_block()),
        }
        missing = {kind for kind, needed in there.items() if not needed}
        if left_out := missing.intersection(chosen.faults):
            print(f"left out: {', '.join(sorted(left_out))}", flush=True)
        campaign = Campaign(stage, history, chosen.seed)
        report = asyncio.run(campaign.run(set(chosen.faults) - missing, 60 * chosen.minutes))
    # What is left tells what happened; the data would fill the disk run by run.
    shutil.rmtree(directory / "kafka")
    print(*report.table(), f"seed {chosen.seed}, history {history_file}", *report.wrong, sep="\n")
    return int(bool(report.wrong))


def _earlier(directory: Path) -> Path | None:
    """Return the source tree of the version before, None if it may not run beside this one; say why."""
    try:
        tree = versions.make_earlier(directory)
    except versions.NoEarlier as reason:
        print(reason)
        return None
    if versions.group_protocol(tree) == versions.group_protocol(versions.ROOT):
        return tree
    print("the version before has other formats, so nodes of it may not be in the same group")
    return None


if __name__ == "__main__":
    sys.exit(main())
