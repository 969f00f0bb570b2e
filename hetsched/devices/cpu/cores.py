"""The cores that this process may use, and the processor that they belong to."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path

_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_CPUINFO = Path("/proc/cpuinfo")


def allowed() -> list[int]:
    """Return the cores of the affinity mask, ascending."""
    return sorted(os.sched_getaffinity(0))


def quota(membership: Path = _CGROUP, root: Path = _CGROUP_ROOT) -> float:
    """Return the number of cores that the cgroups' quotas allow (v1, v2); inf: no limit."""
    return min((_group_quota(folder) for folder in _folders(membership, root)), default=math.inf)


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


def _folders(membership: Path, root: Path) -> list[Path]:
    """Yield the folders of this process's cgroups and their parents; some may not exist."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            tops = [root, root / "unified"]
        elif "cpu" in controllers.split(","):
            tops = [root / controllers, root / "cpu"]
        else:
            continue
        relative = Path(path.lstrip("/"))
        for top in tops:
            folders += [top / part for part in (relative, *relative.parents)]
    return folders


def _group_quota(folder: Path) -> float:
    limits = _numbers(folder / "cpu.max")  # quota and period, version 2
    if limits is None:
        limits = _numbers(folder / "cpu.cfs_quota_us") or []
        limits = [*limits, *(_numbers(folder / "cpu.cfs_period_us") or [])]
    if len(limits) != 2 or limits[0] <= 0 or limits[1] <= 0:
        return math.inf
    return limits[0] / limits[1]


def _numbers(path: Path) -> list[float] | None:
    try:
        words = path.read_text(encoding="ascii").split()
        return [math.inf if word == "max" else float(word) for word in words]
    except (OSError, ValueError):
        return None
