"""`hetsched serve`: the daemon."""

from __future__ import annotations

import faulthandler

from hetsched.cli import logs
from hetsched.cli.flags import ConfigName
from hetsched.config import load


def serve(config: ConfigName = None) -> None:
    """Run the daemon in the foreground."""
    settings, source = load(config)
    logs.at_least_info()
    faulthandler.enable()  # the watchdog's SIGABRT shows where each thread hangs
    from hetsched.daemon import lifecycle

    lifecycle.serve(settings, source=source)
