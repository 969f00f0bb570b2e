"""One file per request, whose `handle` returns commands; these two tables are the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import ClientSession, Requester
from hetsched.daemon.requests import (
    adopt,
    allocate,
    cancel,
    devices,
    drop,
    explain,
    follow,
    hello,
    map,
    ping,
    show,
    submit,
)
from hetsched.daemon.requests.inspection import metrics, overview
from hetsched.daemon.requests.queue import QUEUE_REQUESTS
from hetsched.transport import messages

BY_SESSION: dict[type, Callable[[Ledger, ClientSession, Any], list[Command]]] = {
    messages.Hello: hello.handle,
    messages.Allocate: allocate.handle,
    messages.Map: map.handle,
    messages.Drop: drop.handle,
    messages.Adopt: adopt.handle,
}
"""Requests over the session's socket."""

BY_ENVELOPE: dict[type, Callable[[Ledger, Requester, Any, float], list[Command]]] = {
    messages.Ping: ping.handle,
    messages.Submit: submit.handle,
    messages.Show: show.handle,
    messages.Follow: follow.handle,
    messages.Cancel: cancel.handle,
    messages.Explain: explain.handle,
    messages.Devices: devices.handle,
    messages.Metrics: metrics.handle,
    messages.Overview: overview.handle,
    **QUEUE_REQUESTS,
}
"""Requests over ZeroMQ."""
