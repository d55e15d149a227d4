"""Reads back what a chart would draw, from its Vega-Lite specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd


@dataclass
class Unit:
    """One mark with its data, and the title of the panel that it is in."""

    mark: str
    data: pd.DataFrame
    encoding: dict[str, Any]
    title: Any


_READ: dict[
    int, tuple[Any, dict[str, Any]]
] = {}  # charts too: no other one gets their numbers


def specification(chart) -> dict[str, Any]:
    """The chart's dictionary, which Altair takes half a second to make and to check."""
    if id(chart) not in _READ:
        _READ[id(chart)] = chart, chart.to_dict()
    return _READ[id(chart)][1]


def units(chart) -> list[Unit]:
    spec = specification(chart)
    return list(_walk(spec, spec["datasets"], None, None))


def _walk(spec, datasets, data, title):
    data, title = spec.get("data", data), spec.get("title", title)
    parts = [
        p
        for kind in ("layer", "concat", "hconcat", "vconcat")
        for p in spec.get(kind, [])
    ]
    for part in parts:
        yield from _walk(part, datasets, data, title)
    if not parts:
        mark = spec["mark"]["type"]
        yield Unit(mark, pd.DataFrame(datasets[data["name"]]), spec["encoding"], title)


def marks(chart, kind: str) -> list[Unit]:
    return [unit for unit in units(chart) if unit.mark == kind]


def most_rows(chart) -> int:
    """Rows of the largest table; Altair refuses more than 5000."""
    return max(len(rows) for rows in specification(chart)["datasets"].values())
