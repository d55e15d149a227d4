"""All benchmarks in one table: `python -m benchmarks [names]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import (
    bases,
    cleaning,
    confirm,
    dashboard,
    device,
    digests,
    dropped,
    explorer,
    huge_row,
    inspector,
    intervals,
    label_errors,
    language,
    lesson,
    lookups,
    on_gpu,
    pairs,
    private,
    provenance,
    quantized,
    quickstart,
    recorded,
    report,
    rounds,
    scores,
    scripts,
    shadows,
    site,
    smollm2,
    teaching,
    timeline,
    trace,
    truth,
    vision,
    watch,
    when,
    whole_way,
    widths,
)
from benchmarks.measure import Row, machine, table

TOPICS = {
    "psmi": scores.psmi,
    "smollm2": smollm2.rows,
    "large": scores.large,
    "layers": scores.layers,
    "auc": scores.auc,
    "intervals": intervals.rows,
    "cleaning": cleaning.rows,
    "label-errors": label_errors.rows,
    "lira": scores.lira,
    "variances": truth.variances,
    "references": truth.references,
    "huge-row": huge_row.rows,
    "widths": widths.rows,
    "shadows": shadows.rows,
    "bases": bases.rows,
    "quantized": quantized.rows,
    "device": device.rows,
    "gpu": on_gpu.rows,
    "language": language.language,
    "text": language.text,
    "wards": language.wards,
    "pairs": pairs.rows,
    "recorded": recorded.rows,
    "vision": vision.rows,
    "quickstart": quickstart.rows,
    "teaching": teaching.rows,
    "rounds": rounds.rows,
    "dashboard": dashboard.rows,
    "dropped": dropped.rows,
    "explorer": explorer.rows,
    "timeline": timeline.rows,
    "inspector": inspector.rows,
    "report": report.rows,
    "site": site.rows,
    "watch": watch.rows,
    "scripts": scripts.rows,
    "whole-way": whole_way.rows,
    "private": private.rows,
    "trace": trace.rows,
    "provenance": provenance.rows,
    "digests": digests.rows,
    "lookups": lookups.rows,
}


def main() -> None:
    """Run the chosen topics, and print their table."""
    if sys.argv[1:2] == ["confirm"]:
        confirm.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["when"]:
        when.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["lesson"]:
        lesson.main()
        return
    arguments = _arguments()
    rows: list[Row] = []
    for name in arguments.topics or TOPICS:
        print(f"measuring {name} …", file=sys.stderr)
        rows += TOPICS[name](arguments)
    if not rows:
        return
    print(f"{table(rows)}\n\n{machine()}; medians of interleaved runs in one process.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "topics", nargs="*", choices=[*TOPICS, []], help="topics (default: all)"
    )
    parser.add_argument("--smollm2", type=Path, help="folder for from_pretrained")
    parser.add_argument("--mmlu", type=Path, help="MMLU's test questions as JSON lines")
    parser.add_argument(
        "--banking77", type=Path, help="Banking77's training messages as CSV"
    )
    parser.add_argument("--cifar10", type=Path, help="CIFAR-10, as for fetch_cifar10")
    parser.add_argument("--states", type=Path, help="folder to cache hidden states in")
    parser.add_argument(
        "--runs", type=Path, help="folder for the runs of cleaning, which stay there"
    )
    parser.add_argument("--device", help="of device and gpu (default: auto)")
    parser.add_argument(
        "--tiny", action="store_true", help="all parts of gpu, on a CPU, too"
    )
    parser.add_argument(
        "--old", type=Path, help="another checkout, measured beside this one"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
