"""What the fleet of device processes reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hetsched.transport.device_messages import Event


@dataclass(frozen=True)
class FleetListener:
    """Callbacks, all on the loop's thread."""

    on_event: Callable[[str, Event], None]
    """(device, event)"""
    on_lost: Callable[[tuple[str, ...], str, tuple[str, ...]], None]
    """(devices, reason, culprits): their process has died, because of `culprits` if known."""
    on_ready: Callable[[tuple[str, ...]], None]
    """(devices): their process takes commands."""
    on_stuck: Callable[[frozenset[int]], Callable[[], None]] = lambda keys: lambda: None
    """(keys of attachments): a killed process that doesn't end may still write to these. Returns
    what to call when it has ended."""
    on_memory: Callable[[str, bool, bool], None] = lambda device, has_changed, is_released: None
    """(device, has_changed, is_released): jobs may use another amount of its memory; it has
    released what it kept of earlier jobs."""
