"""The log on standard error: one line per event, whatever the event contains.

Messages about a job begin with "job %d", so that the number also becomes a field of its own.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

from hetsched.errors import UsageError, text_of
from hetsched.text import clean

JOB_PREFIX = "job %d"
PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
"""Level -> priority of syslog, as the journal reads it (sd-daemon(3))."""


class OneLineFormatter(logging.Formatter):
    """Escapes line breaks and control characters; adds tracebacks only with `--debug`."""

    layout = "%(asctime)s %(levelname)s %(name)s: %(message)s"

    def __init__(self, debug: bool) -> None:
        super().__init__(self.layout)
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, "%Y-%m-%dT%H:%M:%S")
        line = clean(self.formatMessage(record))
        if record.exc_info and record.exc_info[1] is not None:
            cause = record.exc_info[1]
            line += clean(f" ({type(cause).__name__}: {text_of(cause)})")
            if self._debug:
                line += "\n" + self.formatException(record.exc_info)
        return line


class JournalFormatter(OneLineFormatter):
    """For the journal of systemd: it has the time, and reads a priority from each line."""

    layout = "%(name)s: %(message)s"

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{PRIORITIES.get(logging.getLevelName(record.levelno), 6)}>"
        return "\n".join(prefix + line for line in super().format(record).split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message; job and error where there are."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(record))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    job = record.args[0] if isinstance(record.args, tuple) and record.args else None
    if isinstance(job, int) and str(record.msg).startswith(JOB_PREFIX):
        fields["job"] = job
    if record.exc_info and (error := record.exc_info[1]) is not None:
        fields |= {"error": type(error).__name__, "reason": str(error)}
        fields["traceback"] = "".join(traceback.format_exception(error))
    return fields


def error_object(message: str, code: int) -> str:
    """Return the last error of a command as the JSON formatter would log it, with its code."""
    record = logging.LogRecord("hetsched", logging.ERROR, "", 0, message, None, None)
    return json.dumps({**_fields(record), "code": code})


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the present sys.stderr: progress bars replace it, to have lines above them."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


FORMATS: dict[str, Callable[[bool], logging.Formatter]] = {
    "text": OneLineFormatter,
    "json": lambda debug: JsonFormatter(),
    "journal": JournalFormatter,
}


def configure(verbose: bool, debug: bool, log_format: str | None) -> None:
    """Log warnings; with `verbose` also information, with `debug` everything.

    `log_format` None: chosen by where standard error leads. Raises UsageError (no such format).
    """
    name = default_format() if log_format is None else log_format
    if name not in FORMATS:
        raise UsageError(f"--log-format {name!r}: choose from: {', '.join(FORMATS)}")
    handler = StderrHandler()
    handler.setFormatter(FORMATS[name](debug))
    root = logging.getLogger("hetsched")
    root.handlers[:] = [handler]
    root.propagate = False
    level = logging.INFO if verbose else logging.WARNING
    root.setLevel(logging.DEBUG if debug else level)


def default_format() -> str:
    """Return "journal" if standard error leads to the journal of systemd, else "text"."""
    stream = os.environ.get("JOURNAL_STREAM", "")
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return "text"
    return "journal" if stream == f"{status.st_dev}:{status.st_ino}" else "text"
