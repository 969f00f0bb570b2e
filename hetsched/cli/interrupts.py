"""Ctrl-C that isn't lost where Python ignores exceptions: some imports, and destructors.

Until a command begins there is nothing to tidy up, so a Ctrl-C ends the process: raised while
msgspec looks through a class, KeyboardInterrupt would make that crash.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetsched.local import Local

_unseen = threading.Event()  # Set by a Ctrl-C until `seen`
_begun = threading.Event()


def install_handler(end: Callable[[], object]) -> None:
    """Note every Ctrl-C from now on, and call `end`, which does not return.

    From `begin` on it raises KeyboardInterrupt instead.
    """
    _unseen.clear()
    _begun.clear()
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default and threading.current_thread() is threading.main_thread():

        def on_interrupt(number: int, frame: FrameType | None) -> None:
            _unseen.set()
            if not _begun.is_set():
                end()
            raise KeyboardInterrupt

        signal.signal(signal.SIGINT, on_interrupt)
        report = sys.unraisablehook
        sys.unraisablehook = lambda ignored: (
            None if issubclass(ignored.exc_type, KeyboardInterrupt) else report(ignored)
        )


def begin() -> None:
    """Note that a command begins, which tidies up at a KeyboardInterrupt."""
    _begun.set()


def is_unseen() -> bool:
    return _unseen.is_set()


def reraise() -> None:
    """Raise the KeyboardInterrupt that an import or a destructor swallowed, if there was one."""
    if _unseen.is_set():
        raise KeyboardInterrupt


def seen() -> None:
    """Note that the KeyboardInterrupt was caught, and the command goes on."""
    _unseen.clear()


@contextlib.contextmanager
def engine(config: str | None) -> Iterator[Local]:
    """Start an engine in this process. A Ctrl-C that an import has swallowed counts."""
    from hetsched.config import load, located
    from hetsched.local import Local

    settings, source = load(config)
    reraise()
    with located(source), Local(config=settings) as local:
        reraise()
        yield local
