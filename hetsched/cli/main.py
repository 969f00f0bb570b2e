"""`hetsched`: run one command; report any error as one line and an exit code.

Everything heavy is imported inside functions, so that `--version` is instant and Ctrl-C during
start-up is handled too.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple

from hetsched.cli import interrupts

BROKEN_PIPE = 128 + signal.SIGPIPE
"""Exit code that shells show for a program that wrote to a closed pipe."""
INTERRUPTED = 130
LOG_FORMAT = "--log-format"


class GeneralFlags(NamedTuple):
    """The flags that may stand anywhere. `log_format`: as given; "" if its value is missing."""

    verbose: bool = False
    debug: bool = False
    log_format: str | None = None


def split(words: Sequence[str]) -> tuple[list[str], GeneralFlags]:
    """Return `words` without the general flags before a `--`, and these flags."""
    end = words.index("--") if "--" in words else len(words)
    head = iter(words[:end])
    rest: list[str] = []
    verbose = debug = False
    log_format = None
    for word in head:
        if word in ("-v", "--verbose"):
            verbose = True
        elif word == "--debug":
            debug = True
        elif word == LOG_FORMAT:
            log_format = next(head, "")
        elif word.startswith(f"{LOG_FORMAT}="):
            log_format = word.partition("=")[2]
        else:
            rest.append(word)
    return [*rest, *words[end:]], GeneralFlags(verbose, debug, log_format)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `arguments` (default: sys.argv) and return the exit code (`docs/cli.md`).

    `-v`, `--debug` and `--log-format` may stand anywhere before a `--`.
    """
    gc.set_threshold(50_000)  # imports make objects that stay: a tenth of a daemon's start
    words, flags = split(sys.argv[1:] if arguments is None else arguments)
    interrupts.install_handler(lambda: os._exit(_fail(INTERRUPTED, "interrupted", flags)))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # whatever the terminal can show
    try:
        from hetsched.cli.terminal import flush_lines, out

        if words == ["--version"]:
            from hetsched import __version__

            out(f"hetsched {__version__}")
            code = 0
        else:
            from hetsched.cli.app import call

            code = call(words, flags.verbose, flags.debug, flags.log_format)
        flush_lines()  # a full disk may be reported only now
        return code
    except KeyboardInterrupt:
        return _fail(INTERRUPTED, "interrupted", flags)
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except Exception as error:
        from hetsched.errors import HetschedError, InternalError, to_record

        record = to_record(error)
        message = record.message
        if record.code == InternalError.code and not isinstance(error, HetschedError):
            message = f"a bug in hetsched: {message}; --debug shows where"
        if interrupts.is_unseen() and record.code != INTERRUPTED:
            return _fail(INTERRUPTED, "interrupted", flags)  # imports make other errors of it
        return _fail(record.code, message, flags)


def _fail(code: int, message: str, flags: GeneralFlags) -> int:
    """Print `message` and return `code`, whether or not Ctrl-C is pressed again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from hetsched.text import clean

    with contextlib.suppress(OSError, ValueError):
        if flags.debug:
            import traceback

            traceback.print_exc()
        line = f"error: {clean(message)}"
        if flags.log_format == "json":
            from hetsched.cli.logs import error_object

            line = error_object(clean(message), code)
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _silence_stdout()
    return code


def _silence_stdout() -> None:
    """Redirect standard output to /dev/null: the interpreter flushes it again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
