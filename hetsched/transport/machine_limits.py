"""Limits of this machine: memory, including that of cgroups, and descriptors."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from hetsched.errors import ConfigError, HetschedError
from hetsched.units import parse_size

_CGROUP = Path("/sys/fs/cgroup")
_PERCENT = re.compile(r"^(\d+(?:\.\d+)?)\s*%$", re.ASCII)


def machine_memory(root: Path = _CGROUP, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Return the bytes of memory that this process may use: physical, or a cgroup's limit."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *_cgroup_limits(root, membership)])


def resolve_size(text: str, total: int, key: str) -> int:
    """Return the bytes of "70%" of `total`, or of a plain size such as "4GiB".

    Raises
    ------
    ConfigError
        Neither; the message names the configuration's `key`.
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


def _cgroup_limits(root: Path, membership: Path) -> list[int]:
    """Return memory.max of this process's cgroup (version 2) and its parents, where set."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    name = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder = root / name.strip("/")
    limits = []
    for level in [folder, *folder.parents]:
        if not level.is_relative_to(root):
            break
        try:
            limits.append(int((level / "memory.max").read_text()))
        except (OSError, ValueError):  # no such file at the root; "max" means none
            continue
    return limits
