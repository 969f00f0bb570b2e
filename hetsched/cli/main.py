"""`hetsched`: runs one command and turns whatever happens into one line and an exit code.

Everything heavy is imported inside, so that `--version` is instant and Ctrl-C during start-up is
caught too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from hetsched.cli.interrupts import remember

BROKEN_PIPE = 128 + signal.SIGPIPE
"""What a shell shows for a program that writes to a closed pipe."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `arguments` (sys.argv by default); an exit code as in the README, never a traceback.

    `-v` and `--debug` may stand anywhere before a `--`.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    words, verbose, debug = _general_flags(given)
    remember()
    try:
        code = _perform(words, verbose, debug)
        _flush()
        return code
    except KeyboardInterrupt:
        return _end(130, "interrupted", debug)
    except BrokenPipeError:
        _mute()
        return BROKEN_PIPE
    except Exception as error:
        return _end(*_explain(error), debug)


def _general_flags(words: list[str]) -> tuple[list[str], bool, bool]:
    """`words` without -v and --debug, and whether these were among them."""
    end = words.index("--") if "--" in words else len(words)
    head = words[:end]
    rest = [word for word in head if word not in ("-v", "--verbose", "--debug")]
    verbose = "-v" in head or "--verbose" in head
    return rest + words[end:], verbose, "--debug" in head


def _perform(words: list[str], verbose: bool, debug: bool) -> int:
    if words == ["--version"]:
        from hetsched import __version__
        from hetsched.cli.output.terminal import out

        out(f"hetsched {__version__}")
        return 0
    from hetsched.cli.app import call

    return call(words, verbose, debug)


def _explain(error: Exception) -> tuple[int, str]:
    """The exit code and the line for `error`."""
    from hetsched.errors import HetschedError, InternalError

    if isinstance(error, HetschedError):
        return error.code, str(error)
    text = f"{type(error).__name__}: {error}"
    return InternalError.code, f"a bug in hetsched: {text}; --debug shows where"


def _end(code: int, message: str, debug: bool) -> int:
    """Say `message`; from here on no further Ctrl-C may spoil the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from hetsched.cli.output.terminal import clean

    with contextlib.suppress(OSError, ValueError):
        if debug:
            import traceback

            traceback.print_exc()
        sys.stderr.write(f"error: {clean(message)}\n")
        sys.stderr.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    return code


def _flush() -> None:
    """A full disk behind standard output shows only now."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        from hetsched.errors import IOFailure

        _mute()
        raise IOFailure(f"standard output: {error.strerror}") from None


def _mute() -> None:
    """The interpreter flushes once more at its end: let that go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
