"""The log on standard error: one line per event, whatever the event contains."""

from __future__ import annotations

import logging
import sys

from hetsched.cli.output.terminal import clean

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class OneLineFormatter(logging.Formatter):
    """Escapes line breaks and control characters; adds tracebacks only with `--debug`."""

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
    """Log warnings; with `verbose` also information, with `debug` everything."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter(debug))
    root = logging.getLogger("hetsched")
    root.handlers[:] = [handler]
    root.propagate = False
    level = logging.INFO if verbose else logging.WARNING
    root.setLevel(logging.DEBUG if debug else level)


def at_least_info() -> None:
    """Log information too: for the daemon, which has no other output."""
    root = logging.getLogger("hetsched")
    root.setLevel(min(root.level, logging.INFO))
