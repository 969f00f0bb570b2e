"""What `hetsched top` shows: jobs and devices at one moment. No behaviour."""

from __future__ import annotations

from typing import Any

import msgspec

from hetsched.device import DeviceInfo
from hetsched.job import JobState


class DeviceActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What one device does for one job.

    Attributes
    ----------
    share, done : int, units
        As planned; finished, which exceeds the share if chunks of others were stolen.
    predicted_speed, speed : float or None, units per second
        By the plan; over the last chunks. None: unknown.
    h2d_busy, compute_busy, d2h_busy : float, 0 to 1
        Fraction of the time of the last chunks in which it copied in, computed, copied out.
    h2d_rate, d2h_rate : float or None, bytes per second
        While copying; None without a link.
    is_iterative : bool
        `share` are its present rows, speeds in rows per second, fractions those of the last
        iterations.
    """

    device: str
    job: int
    workload: str
    variant: str
    share: int
    done: int = 0
    predicted_speed: float | None = None
    speed: float | None = None
    h2d_busy: float = 0.0
    compute_busy: float = 0.0
    d2h_busy: float = 0.0
    h2d_rate: float | None = None
    d2h_rate: float | None = None
    is_iterative: bool = False


class JobBrief(msgspec.Struct, frozen=True, kw_only=True):
    """One unfinished job. Times in seconds since the epoch."""

    job: int
    workload: str
    params: dict[str, Any] = {}
    label: str = ""
    priority: int = 0
    state: JobState
    submitted_at: float
    started_at: float | None = None


class DaemonOverview(msgspec.Struct, frozen=True, kw_only=True):
    """Running jobs, the first waiting ones, and devices.

    Attributes
    ----------
    now : float, seconds since the epoch
        By the daemon's clock.
    jobs : tuple of JobBrief
        Running ones first, then waiting ones in about the order in which they will run.
    running, waiting, ended : int
        How many there are in all; ended ones since the daemon's start.
    absent, restricted : dict
        Device or kind -> why it takes no jobs; device -> why it takes none of some kinds.
    arena_used, arena_limit : int, bytes
    """

    pid: int
    version: str
    uptime_seconds: float
    now: float
    is_draining: bool = False
    jobs: tuple[JobBrief, ...] = ()
    running: int = 0
    waiting: int = 0
    ended: int = 0
    devices: tuple[DeviceInfo, ...] = ()
    absent: dict[str, str] = {}
    restricted: dict[str, str] = {}
    activities: tuple[DeviceActivity, ...] = ()
    arena_used: int = 0
    arena_limit: int = 0
