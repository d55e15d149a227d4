"""Commands of ``python -m memowidgets`` that need no notebook: demo, view, report, audits."""

from memowidgets.commands.demo import demo
from memowidgets.commands.listing import listing
from memowidgets.commands.runs import CommandError, opened, refusing
from memowidgets.commands.view import view

__all__ = ["CommandError", "demo", "listing", "opened", "refusing", "view"]
