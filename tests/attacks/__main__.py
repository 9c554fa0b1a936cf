"""`python -m tests.attacks [NAME...] [--seconds 60]`: attack a separate service, and print the results."""

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests.attacks.attackers import ATTACKS
from tests.attacks.report import HEADER, attacked
from tests.process import ServiceProcess


def main() -> None:
    """Run the named attacks, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*ATTACKS, []], metavar="NAME", help=", ".join(ATTACKS))
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each attack (60)")
    chosen = parser.parse_args()
    print(HEADER, flush=True)
    for name in chosen.names or ATTACKS:
        with tempfile.TemporaryDirectory() as directory:
            service = ServiceProcess(Path(directory) / "data").start()
            try:
                print(asyncio.run(attacked(name, service, chosen.seconds)).line(), flush=True)
            finally:
                service.stop()


if __name__ == "__main__":
    main()
