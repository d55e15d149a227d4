"""Commands of ``python -m memowidgets`` that need no notebook."""

from memowidgets.commands.demo import demo
from memowidgets.commands.device_check import check_device
from memowidgets.commands.runs import CommandError, listing, opened, refusing

__all__ = [
    "CommandError",
    "check_device",
    "demo",
    "listing",
    "opened",
    "refusing",
]
