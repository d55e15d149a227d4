"""The command line: ``python -m memowidgets``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from memowidgets import __version__
from memowidgets.extras import LIBRARIES
from memowidgets.vocabulary import visible

FAILED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    # its encoding may lack ρ, as in a pipe on Windows
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    chosen, unknown = _parser().parse_known_args(arguments)
    if unknown:
        chosen.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    from memowidgets.commands.runs import CommandError

    try:
        status = int(chosen.run(chosen))
        sys.stdout.flush()  # here, where a closed pipe is expected
    except (CommandError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name not in LIBRARIES:
            raise
        print(f"memowidgets: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # the reader has enough, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m memowidgets",
        description="Find out which training samples a classifier will memorise, before it does.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    doctor = commands.add_parser(
        "doctor", help="check what is installed and what is missing"
    )
    on = "train a small audit on a device, such as cuda, and compare it with the CPU"
    doctor.add_argument("--device", metavar="NAME", help=on)
    doctor.set_defaults(run=_doctor, parser=doctor)
    _add_demo(commands.add_parser("demo", help="open a recorded audit in the browser"))
    _add_report(
        commands.add_parser("report", help="write a run's report: one offline page")
    )
    audits = commands.add_parser("audits", help="list the runs in a folder")
    audits.add_argument("folder", type=Path, metavar="FOLDER")
    audits.set_defaults(run=_audits, parser=audits)
    return parser


def _add_demo(demo: argparse.ArgumentParser) -> None:
    folder = "folder for the page (default: a new temporary one)"
    demo.add_argument("--out", type=Path, metavar="FOLDER", help=folder)
    path = "only write the page and print its path"
    demo.add_argument("--no-browser", "--no-open", action="store_true", help=path)
    demo.add_argument("--overwrite", action="store_true", help="replace existing files")
    demo.set_defaults(run=_demo, parser=demo)


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", help="the run directory"
    )
    report.add_argument(
        "page", type=Path, metavar="OUT.html", help="the page; OUT.json too"
    )
    report.add_argument(
        "--tau", type=float, help="flag samples that score at most this (psmi: 0)"
    )
    report.add_argument("--metric", help="psmi, loss, logit_gap, mahalanobis …")
    samples = "include the samples most at risk, with labels and ids"
    report.add_argument("--include-samples", action="store_true", help=samples)
    report.add_argument(
        "--overwrite", action="store_true", help="replace existing files"
    )
    report.set_defaults(run=_report, parser=report)


def _doctor(chosen: argparse.Namespace) -> int:
    from memowidgets.commands.doctor import check_device, examine

    failed = False
    for finding in examine() if chosen.device is None else check_device(chosen.device):
        print(finding, flush=True)
        failed |= finding.wrong
    return int(failed)


def _demo(chosen: argparse.Namespace) -> int:
    from memowidgets.commands.demo import demo

    for line in demo(
        chosen.out, browser=not chosen.no_browser, overwrite=chosen.overwrite
    ):
        print(line, flush=True)
    return 0


def _report(chosen: argparse.Namespace) -> int:
    from memowidgets.commands.runs import check_free, check_samples, open_run, refusing

    check_free(chosen.page, overwrite=chosen.overwrite)
    audit = open_run(chosen.run_dir)
    if chosen.include_samples:
        check_samples(audit)
    with refusing(chosen.run_dir):
        page = audit.report(
            chosen.page,
            include_samples=chosen.include_samples,
            overwrite=chosen.overwrite,
            tau=chosen.tau,
            metric=chosen.metric,
        )
    twin = page.with_suffix(".json")
    for file in (page, twin):
        print(visible(str(file)))
    for note in json.loads(twin.read_text("utf-8"))["warnings"]:
        print(f"note: {visible(note)}", file=sys.stderr)
    return 0


def _audits(chosen: argparse.Namespace) -> int:
    from memowidgets.commands.runs import listing

    print("\n".join(listing(chosen.folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
