"""Commands of ``python -m memowidgets`` that need no notebook: view, report, audits."""

from memowidgets.commands.listing import listing
from memowidgets.commands.runs import CommandError, opened, refusing
from memowidgets.commands.view import view

__all__ = ["CommandError", "listing", "opened", "refusing", "view"]
