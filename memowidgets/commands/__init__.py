"""Commands of ``python -m memowidgets`` that need no notebook."""

from memowidgets.commands.device_check import check_device, write_report
from memowidgets.commands.runs import CommandError, listing, opened, refusing
from memowidgets.commands.view import demo, view

__all__ = [
    "CommandError",
    "check_device",
    "demo",
    "listing",
    "opened",
    "refusing",
    "view",
    "write_report",
]
