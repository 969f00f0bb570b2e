"""`hetsched top`: jobs and devices, live, on the whole terminal."""

from __future__ import annotations

import sys

from hetsched.errors import UsageError


def top() -> int:
    """Show devices, queue and running jobs on the whole screen."""
    _check_terminal()
    from hetsched.cli.commands.top.poller import connect
    from hetsched.cli.commands.top.session import run

    return run(connect())


def _check_terminal() -> None:
    """Raise UsageError unless input and output are a terminal that can move its cursor."""
    from hetsched.cli.output.terminal import can_move_cursor

    if not (sys.stdin.isatty() and sys.stdout.isatty() and can_move_cursor()):
        raise UsageError("top needs a terminal; elsewhere use: hetsched status --json")
