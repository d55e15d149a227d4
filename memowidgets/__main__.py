"""The command line: ``python -m memowidgets``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and answer with its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m memowidgets",
        description="Find out which training samples a classifier will memorise, before it does.",
    )
    parser.add_argument("--version", action="version", version=version("memowidgets"))
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="say what is installed and what is missing")
    doctor.set_defaults(run=_doctor)
    chosen = parser.parse_args(arguments)
    return int(chosen.run())


def _doctor() -> int:
    from memowidgets.doctor import examine

    failed = False
    for finding in examine():
        print(finding, flush=True)
        failed |= finding.essential
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
