"""Check limits of the system that jobs and daemons meet: descriptors, memory, socket buffers."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

from hetsched.cli.commands.doctor.check_result import CheckResult
from hetsched.units import format_bytes

MIN_DESCRIPTORS = 4096
"""Less may be too little for a daemon with many clients; arbitrary."""
SHM = Path("/dev/shm")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
SOCKET_BUFFER = Path("/proc/sys/net/core/wmem_max")


def limits() -> list[CheckResult]:
    """Report the limits of this process, which daemons started from here have, too."""
    return [_descriptors(), _locked_memory(), _shared_memory(), _socket_buffer()]


def _descriptors() -> CheckResult:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = _number(soft)
    if soft != hard:
        text += f", a daemon raises that to {_number(hard)}"
    if hard != resource.RLIM_INFINITY and hard < MIN_DESCRIPTORS:
        text += f"; low: jobs are refused when they run out (ulimit -Hn {MIN_DESCRIPTORS})"
    return CheckResult("descriptors", text)


def _locked_memory() -> CheckResult:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    size = "unlimited" if soft == resource.RLIM_INFINITY else format_bytes(soft)
    return CheckResult("locked memory", f"{size}; memory that a GPU's driver pins doesn't count")


def _shared_memory() -> CheckResult:
    """Arrays are in memfds, which neither /dev/shm nor its size limits."""
    parts = [_huge_pages(_chosen(HUGE_PAGES))]
    if SHM.is_dir():
        usage = shutil.disk_usage(SHM)
        free = f"{format_bytes(usage.free)} of {format_bytes(usage.total)} free"
        parts.append(f"/dev/shm: {free}; hetsched doesn't use it, plug-ins may")
    if not hasattr(os, "memfd_create"):
        parts.append("no memfd_create")
    return CheckResult("shared memory", "; ".join(parts))


def _huge_pages(setting: str) -> str:
    """Explain what shmem_enabled means for arrays: they ask the kernel for huge pages."""
    meaning = {
        "never": "arrays use them from Linux 6.1 on; before, large transforms gain up to 5 % by"
        f' "echo advise > {HUGE_PAGES}" (root)',
        "deny": "arrays have pages of 4 KiB; the administrator excludes others",
        "advise": "arrays use them",
        "within_size": "arrays use them",
        "always": "arrays use them",
        "force": "arrays use them",
    }.get(setting)
    return f"huge pages: {setting}" + (f", {meaning}" if meaning else "")


def _socket_buffer() -> CheckResult:
    try:
        size = format_bytes(int(SOCKET_BUFFER.read_text(encoding="ascii")))
    except (OSError, ValueError):
        size = "unknown"
    return CheckResult("socket buffers", f"at most {size}; larger messages are split")


def _chosen(path: Path) -> str:
    """Return the bracketed word of e.g. "always [advise] never"."""
    try:
        words = path.read_text(encoding="ascii").split()
    except OSError:
        return "unknown"
    return next((word.strip("[]") for word in words if word.startswith("[")), "unknown")


def _number(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
