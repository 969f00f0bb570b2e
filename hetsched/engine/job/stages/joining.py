"""Devices that take part in a timed stage again, after their process has started anew."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.engine.job.commands import JobCommand, PrepareDevice
from hetsched.engine.job.states import Computing, Iterating


def prepare_joining(
    state: Computing | Iterating, devices: Sequence[str], now: float
) -> list[JobCommand]:
    """Prepare `devices`, which may compute when they have answered."""
    attempt = state.attempt
    attempt.live.update(devices)
    state.joining.update(dict.fromkeys(devices, now))
    return [
        PrepareDevice(attempt.id, attempt.to_prepare(device), answer=True) for device in devices
    ]
