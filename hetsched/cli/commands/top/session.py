"""The loop of `hetsched top`: keys and answers to the model, the model's lines to the terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hetsched.cli.commands.top.poller import Change, Poller
from hetsched.cli.commands.top.terminal_screen import TerminalScreen
from hetsched.cli.output.top.layout import screen
from hetsched.cli.output.top.model import Action, JobAction, Quit, TopState, on_key
from hetsched.client.control import Control

WAIT_SECONDS = 60.0
"""Longest wait for a key or an answer; the screen doesn't change meanwhile."""
SIGNAL_CODE = 128
"""Added to the number of a signal, as shells do."""


def run(control: Control) -> int:
    """Run until the user quits; return the exit code. The terminal is restored in any case."""
    changes: deque[Change] = deque()
    terminal = TerminalScreen()

    def on_change(change: Change) -> None:
        changes.append(change)
        terminal.wake()

    poller = Poller(control, on_change)
    with terminal:
        poller.start()
        try:
            return _loop(terminal, changes, poller.act)
        finally:
            poller.stop()


def _loop(
    terminal: TerminalScreen, changes: deque[Change], act: Callable[[JobAction], None]
) -> int:
    state = TopState()
    while True:
        size = terminal.size()
        terminal.draw(screen(state, *size), size)
        keys = terminal.wait(WAIT_SECONDS)
        if terminal.received:
            return SIGNAL_CODE + terminal.received[0]
        if keys is None:
            return 0
        while changes:
            state = changes.popleft()(state)
        for key in keys:
            action: Action | None
            state, action = on_key(state, key)
            if isinstance(action, Quit):
                return action.code
            if action is not None:
                act(action)
