"""The log on stderr: one line an event, whatever is in it."""

from __future__ import annotations

import logging
import sys

from hetsched.cli.output.terminal import clean

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class OneLine(logging.Formatter):
    """Escapes what could forge a line; tracebacks only with `--debug`."""

    def __init__(self, debug: bool) -> None:
        super().__init__(FORMAT)
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        line = clean(self.formatMessage(record))
        if record.exc_info and record.exc_info[1] is not None:
            cause = record.exc_info[1]
            line += clean(f" ({type(cause).__name__}: {cause})")
            if self._debug:
                line += "\n" + self.formatException(record.exc_info)
        return line


def configure(verbose: bool, debug: bool) -> None:
    """Log warnings, or everything that is worth reading with `verbose`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(debug))
    root = logging.getLogger("hetsched")
    root.handlers[:] = [handler]
    root.propagate = False
    level = logging.INFO if verbose else logging.WARNING
    root.setLevel(logging.DEBUG if debug else level)


def at_least_info() -> None:
    """For the daemon, whose log is its only voice."""
    root = logging.getLogger("hetsched")
    root.setLevel(min(root.level, logging.INFO))
