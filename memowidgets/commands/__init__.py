"""Commands of ``python -m memowidgets`` that need no notebook."""

from memowidgets.commands.demo import demo
from memowidgets.commands.device import check_device
from memowidgets.commands.listing import listing
from memowidgets.commands.runs import CommandError, opened, refusing
from memowidgets.commands.view import view

__all__ = ["CommandError", "check_device", "demo", "listing", "opened", "refusing", "view"]
