"""Requests that change or list the queue; the table is their registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.daemon.requests.queue import (
    cancel_all,
    clean,
    drain,
    events,
    history,
    hold,
    prioritize,
    release,
    retry,
    status,
)
from hetsched.transport import messages

QUEUE_REQUESTS: dict[type, Callable[[Ledger, Requester, Any, float], list[Command]]] = {
    messages.Status: status.handle,
    messages.CancelAll: cancel_all.handle,
    messages.Hold: hold.handle,
    messages.Release: release.handle,
    messages.Prioritize: prioritize.handle,
    messages.Retry: retry.handle,
    messages.History: history.handle,
    messages.Clean: clean.handle,
    messages.Drain: drain.handle,
    messages.Events: events.handle,
}
