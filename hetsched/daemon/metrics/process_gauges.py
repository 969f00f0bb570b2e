"""The present state of the process: its loop, memory, descriptors and devices. Edge."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path

from hetsched.device import DeviceInfo
from hetsched.transport.arena import Arena
from hetsched.transport.inspection.metric_records import (
    Metric,
    counter,
    gauge,
    labelled,
)


def loop_metrics(longest_callback: float) -> list[Metric]:
    """Return how long the event loop was blocked at most, seconds."""
    return [
        gauge(
            "hetsched_loop_longest_callback_seconds",
            "Time that the slowest callback of the event loop took.",
            longest_callback,
        )
    ]


def arena_metrics(arena: Arena) -> list[Metric]:
    """Return the bytes of shared memory."""
    values: dict[tuple[str, ...], float] = {
        ("used",): arena.used,
        ("warm",): arena.warm,
        ("limit",): arena.limit,
    }
    help = "Shared memory: in use, free but kept, and the limit."
    return [labelled("hetsched_arena_bytes", "gauge", help, values, "kind")]


def device_metrics(infos: Iterable[DeviceInfo], absent: Mapping[str, str]) -> list[Metric]:
    """Return which devices can be used; the reasons are in `hetsched devices`."""
    usable: dict[tuple[str, ...], float] = {(info.name,): 1.0 for info in infos}
    for name in absent:
        usable[(name,)] = 0.0
    help = "1 for a device that takes jobs, 0 for one that is missing, failed or quarantined."
    return [labelled("hetsched_device_up", "gauge", help, usable, "device")]


def process_metrics(uptime: float) -> list[Metric]:
    """Return the daemon's own use of the machine, without its device processes."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [
        gauge("hetsched_uptime_seconds", "Time since the daemon's start.", uptime),
        counter(
            "hetsched_process_cpu_seconds",
            "Processor time of the daemon itself.",
            usage.ru_utime + usage.ru_stime,
        ),
        gauge(
            "hetsched_process_resident_bytes",
            "Memory of the daemon, shared memory that it maps included.",
            _resident_bytes(),
        ),
        gauge("hetsched_process_descriptors", "Open descriptors.", _descriptors()),
        gauge("hetsched_process_descriptors_limit", "Their limit.", soft),
    ]


def _resident_bytes() -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def _descriptors() -> int:
    with contextlib.suppress(OSError):
        return sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1  # the listing's own
    return 0
