"""The thread of `hetsched top` that talks to the daemon, so that keys never wait for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from hetsched.cli.output.top import model
from hetsched.cli.output.top.model import JobAction, TopState
from hetsched.client.control import Control
from hetsched.errors import HetschedError
from hetsched.transport.messages import Changed

INTERVAL_SECONDS = 1.0
"""Time between two overviews; after an action there is one at once."""
ANSWER_SECONDS = 10.0
MAX_WAITING = 100
"""Waiting jobs that are listed."""

Change = Callable[[TopState], TopState]
"""What an answer does to the state of the screen."""


def connect() -> Control:
    """Connect to the daemon; don't look for the next one when it stops. Raises as Control does."""
    return Control(timeout=ANSWER_SECONDS, reconnect=0)


class Poller(threading.Thread):
    """Asks for overviews, executes actions, and connects again after the daemon's end.

    Parameters
    ----------
    control : Control
        Owned from now on.
    on_change : callable
        Called on this thread.
    """

    def __init__(self, control: Control, on_change: Callable[[Change], None]) -> None:
        super().__init__(name="top", daemon=True)
        self._control: Control | None = control
        self._on_change = on_change
        self._actions: queue.SimpleQueue[JobAction | None] = queue.SimpleQueue()

    def act(self, action: JobAction) -> None:
        self._actions.put(action)

    def stop(self) -> None:
        """End soon; an answer that is being waited for is lost."""
        self._actions.put(None)

    def run(self) -> None:
        while True:
            self._poll()
            try:
                action = self._actions.get(timeout=INTERVAL_SECONDS)
            except queue.Empty:
                continue
            if action is None:
                break
            self._execute(action)
        if self._control is not None:
            self._control.close()

    def _poll(self) -> None:
        try:
            if self._control is None:
                self._control = connect()
            overview = self._control.overview(MAX_WAITING)
        except HetschedError as error:
            self._drop_connection()
            text = str(error)
            self._on_change(lambda state: model.on_failure(state, text))
            return
        self._on_change(lambda state: model.on_overview(state, overview))

    def _execute(self, action: JobAction) -> None:
        try:
            if self._control is None:
                self._control = connect()
            change = _perform(self._control, action)
        except HetschedError as error:
            text = str(error)
            self._on_change(lambda state: model.on_refused(state, text))
            return
        self._on_change(change)

    def _drop_connection(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None


def _perform(control: Control, action: JobAction) -> Change:
    """Execute an action. Raises the daemon's error."""
    if action.verb == "explain":
        lines = tuple(str(control.explain(action.job)).splitlines())
        return lambda state: model.on_explanation(state, lines)
    verbs: dict[str, Callable[[int], object]] = {
        "cancel": control.cancel,
        "hold": control.hold,
        "release": control.release,
    }
    outcome = verbs[action.verb](action.job)
    is_changed = not isinstance(outcome, Changed) or outcome.is_changed
    return lambda state: model.on_done(state, action, is_changed)
