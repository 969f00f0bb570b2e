"""What this process may use: memory and cores, also in control groups (v1, v2), and descriptors.

Docker, Slurm and systemd limit with control groups: whoever takes more memory is killed.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import re
import resource
from dataclasses import dataclass
from pathlib import Path

from hetsched.errors import ConfigError, HetschedError
from hetsched.units import parse_size

PROCESS_BYTES = 192 << 20
"""Left in a control group for processes: the daemon and two cores, with all FFT libraries loaded
to plan and time them, use 180 MiB. Whoever exceeds the limit is killed."""
_PERCENT = re.compile(r"^(\d+(?:\.\d+)?)\s*%$", re.ASCII)
_UNRECLAIMABLE = (("total_rss", "total_shmem"), ("anon", "shmem"))
"""Keys of memory.stat in version 1, groups below included, and 2; the rest is page cache."""


@dataclass(frozen=True)
class ControlGroups:
    """The control groups of a process, as files."""

    membership: Path = Path("/proc/self/cgroup")
    root: Path = Path("/sys/fs/cgroup")
    """Where they are mounted. In a container the groups above its own aren't there."""

    def memory_limit(self) -> float:
        """Return the bytes that these groups may have at most; inf: no limit."""
        return min(map(_memory_limit, self._folders("memory")), default=math.inf)

    def memory(self) -> float:
        """Return the bytes that this process may still take; inf: no limit."""
        folders = self._folders("memory")
        return min(
            (_memory_limit(folder) - _in_use(folder) for folder in folders), default=math.inf
        )

    def cores(self) -> float:
        """Return the number of cores that the quotas allow; inf: no limit."""
        return min(map(_core_quota, self._folders("cpu")), default=math.inf)

    def _folders(self, controller: str) -> list[Path]:
        """Return the folders of the groups with this controller and those above them."""
        try:
            # A group's name may have any bytes but a line feed
            text = self.membership.read_text("utf-8", "surrogateescape")
        except OSError:
            return []
        folders: list[Path] = []
        for line in filter(None, text.split("\n")):
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                tops = [self.root, self.root / "unified"]
            elif controller in controllers.split(","):
                tops = [self.root / controllers, self.root / controller]
            else:
                continue
            relative = Path(path.lstrip("/"))
            folders += [top / part for top in tops for part in (relative, *relative.parents)]
        return folders


def machine_memory(groups: ControlGroups = ControlGroups()) -> int:
    """Return the bytes of memory for arrays: physical, or what is left in the control groups."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = max(0.0, groups.memory())
    return int(min(physical, max(free - PROCESS_BYTES, free / 4)))


def free_memory() -> float:
    """Return the bytes that this process may still take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    return min(free, ControlGroups().memory())


def resolve_size(text: str, total: int, key: str) -> int:
    """Return the bytes of "70%" of `total`, or of a plain size such as "4GiB".

    Raises ConfigError, which names the configuration's `key`.
    """
    match = _PERCENT.match(text.strip())
    if match:
        share = float(match[1])
        if not 0 < share <= 100:
            raise ConfigError(f"{key}: {text!r} should be above 0% and at most 100%")
        return int(total * share / 100)
    try:
        return parse_size(text)
    except HetschedError as error:
        raise ConfigError(f"{key}: {error}, or 70%") from None


def raise_descriptor_limit() -> None:
    """Raise RLIMIT_NOFILE to its maximum: libzmq aborts the process when descriptors run out."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _memory_limit(folder: Path) -> float:
    limits = _numbers(folder / "memory.max") or _numbers(folder / "memory.limit_in_bytes")
    return limits[0] if limits else math.inf


def _in_use(folder: Path) -> float:
    try:
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        table = {key: float(value) for key, value in map(str.split, lines)}
    except (OSError, ValueError):
        return 0.0
    for keys in _UNRECLAIMABLE:
        if keys[0] in table:
            return sum(table.get(key, 0.0) for key in keys)
    return 0.0


def _core_quota(folder: Path) -> float:
    limits = _numbers(folder / "cpu.max")  # quota and period, version 2
    if not limits:
        quota, period = (_numbers(folder / f"cpu.cfs_{key}_us") for key in ("quota", "period"))
        limits = [*quota, *period]
    if len(limits) != 2 or limits[0] <= 0 or limits[1] <= 0:
        return math.inf
    return limits[0] / limits[1]


def _numbers(path: Path) -> list[float]:
    try:
        words = path.read_text(encoding="ascii").split()
        return [math.inf if word == "max" else float(word) for word in words]
    except (OSError, ValueError):
        return []


@functools.cache
def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
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
