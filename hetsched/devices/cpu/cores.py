"""The cores that this process may use."""

from __future__ import annotations

import os

from hetsched.machine_limits import ControlGroups


def allowed() -> list[int]:
    """Return the cores of the affinity mask, ascending."""
    return sorted(os.sched_getaffinity(0))


def quota() -> float:
    """Return the number of cores that may be busy at once; inf: no limit."""
    return ControlGroups().cores()
