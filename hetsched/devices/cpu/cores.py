"""The cores that this process may use, and the processor that they belong to."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from hetsched.machine_limits import ControlGroups

_CPUINFO = Path("/proc/cpuinfo")


def allowed() -> list[int]:
    """Return the cores of the affinity mask, ascending."""
    return sorted(os.sched_getaffinity(0))


def quota() -> float:
    """Return the number of cores that may be busy at once; inf: no limit."""
    return ControlGroups().cores()


def processor(cpuinfo: Path = _CPUINFO) -> str:
    """Return the processor's name, which is part of the key of its models."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = (line.partition(":") for line in text.splitlines())
    fields = {key.strip(): value.strip() for key, _, value in lines}
    if fields.get("model name"):
        return fields["model name"]
    if "CPU part" in fields:  # aarch64 has numbers only
        return f"{platform.machine()} {fields.get('CPU implementer')} {fields['CPU part']}"
    return platform.processor() or platform.machine()
