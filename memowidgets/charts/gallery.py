"""Collection of several figures, which a notebook shows."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pandas as pd


class Figures(Mapping[str, Any]):
    """Read-only mapping of names to charts, with the reasons why others were not drawn.

    Parameters
    ----------
    charts : mapping of str to Altair chart
        Charts by name, in the order in which they are shown.
    tables : mapping of str to DataFrame
        Figures of the paper that are tables, by name.
    data : mapping of str to DataFrame
        Numbers behind the charts, by name.
    missing : mapping of str to str
        Reason why a figure was not drawn, by name.
    notes : mapping of str to sequence of str
        Notes that a reader of the figure needs, by name.

    Examples
    --------
    >>> from memowidgets.charts import shadow_curves
    >>> table = pd.DataFrame({"n_shadows": [4, 8], "auc": [0.8, 0.9]})
    >>> chart = shadow_curves(table.assign(auc_low=0.7, auc_high=0.95))
    >>> Figures({"shadows": chart}, missing={"roc": "no ground truth"})
    Figures: shadows
      not drawn: roc (no ground truth)
    """

    def __init__(
        self,
        charts: Mapping[str, Any],
        tables: Mapping[str, pd.DataFrame] | None = None,
        data: Mapping[str, pd.DataFrame] | None = None,
        missing: Mapping[str, str] | None = None,
        notes: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        self._charts = dict(charts)
        self.tables = MappingProxyType(dict(tables or {}))
        self.data = MappingProxyType(dict(data or {}))
        self.missing = MappingProxyType(dict(missing or {}))
        self.notes = MappingProxyType(
            {name: tuple(said) for name, said in (notes or {}).items()}
        )

    def __getitem__(self, name: str) -> Any:
        if name in self._charts:
            return self._charts[name]
        if name in self.missing:
            raise KeyError(f"{name} was not drawn: {self.missing[name]}")
        if name in self.tables:
            raise KeyError(f"{name} is a table; use .tables[{name!r}]")
        raise KeyError(
            f"unknown figure {name!r}; there are {', '.join(self._charts) or 'none'}"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._charts)

    def __len__(self) -> int:
        return len(self._charts)

    def __repr__(self) -> str:
        lines = [f"Figures: {', '.join(self._charts) or 'none'}"]
        if self.tables:
            lines.append(f"  tables: {', '.join(self.tables)}")
        lines += [
            f"  not drawn: {names} ({reason})" for names, reason in self.reasons()
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return all figures as pictures embedded in the page."""
        parts = [_table(name, table) for name, table in self.tables.items()]
        parts += [self._picture(name) for name in self]
        if self.missing:
            items = "".join(
                f"<li><b>{html.escape(names)}</b>: {html.escape(reason)}</li>"
                for names, reason in self.reasons()
            )
            parts.append(f"<p>Not drawn:</p><ul>{items}</ul>")
        return f"<div>{''.join(parts)}</div>"

    def reasons(self) -> list[tuple[str, str]]:
        """Return the names of the figures that were not drawn, with each reason once."""
        together: dict[str, list[str]] = {}
        for name, reason in self.missing.items():
            together.setdefault(reason, []).append(name)
        return [(", ".join(names), reason) for reason, names in together.items()]

    def _picture(self, name: str) -> str:
        chart = self._charts[name]
        text = io.StringIO()
        chart.save(text, format="svg")  # in this process, by vl-convert
        picture = base64.b64encode(text.getvalue().encode()).decode()
        words = html.escape(str(chart.description))
        notes = "".join(f"<br>{html.escape(note)}" for note in self.notes.get(name, ()))
        return (
            f'<figure style="margin:0 0 1.5em"><img alt="{words}" '
            f'src="data:image/svg+xml;base64,{picture}" style="max-width:100%">'
            f"<figcaption><b>{html.escape(name)}</b>. {words}{notes}</figcaption></figure>"
        )


def _table(name: str, table: pd.DataFrame) -> str:
    text = table.to_html(float_format=lambda value: f"{value:.4g}", na_rep="")
    return f"<p><b>{html.escape(name)}</b></p>{text}"
