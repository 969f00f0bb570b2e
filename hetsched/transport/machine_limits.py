"""What this machine lets us have: memory (cgroup included) and descriptors."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from hetsched.errors import ConfigError, HetschedError
from hetsched.units import parse_size

_CGROUP = Path("/sys/fs/cgroup")
_PERCENT = re.compile(r"^(\d+(?:\.\d+)?)\s*%$", re.ASCII)


def machine_memory(root: Path = _CGROUP, own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes of memory that this process may use: physical, or less where a cgroup says so."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *_cgroup_limits(root, own)])


def resolve_size(text: str, total: int, where: str) -> int:
    """Bytes of "70%" of `total`, or of a plain size as "4GiB".

    Raises
    ------
    ConfigError
        Neither; `where` says which key.
    """
    match = _PERCENT.match(text.strip())
    if match:
        share = float(match[1])
        if not 0 < share <= 100:
            raise ConfigError(f"{where}: {text!r} should be above 0% and at most 100%")
        return int(total * share / 100)
    try:
        return parse_size(text)
    except HetschedError as error:
        raise ConfigError(f"{where}: {error}, or 70%") from None


def raise_descriptor_limit() -> None:
    """Raise RLIMIT_NOFILE as far as we may: libzmq aborts the process when descriptors run out."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _cgroup_limits(root: Path, own: Path) -> list[int]:
    """memory.max of this process's cgroup (version 2) and of all above it, where set."""
    try:
        lines = own.read_text().splitlines()
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
