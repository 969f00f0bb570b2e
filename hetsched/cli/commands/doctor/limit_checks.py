"""Check limits of the system that jobs and daemons meet: descriptors, memory, socket buffers."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import shutil
from collections import Counter
from pathlib import Path

from hetsched.cli.commands.doctor.check_result import CheckResult
from hetsched.transport.pages import HUGE_BYTES, seconds_of_one_page
from hetsched.units import format_bytes, format_seconds

MIN_DESCRIPTORS = 4096
"""Less may be too little for a daemon with many clients; arbitrary."""
SHM = Path("/dev/shm")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
BUDDY_INFO = Path("/proc/buddyinfo")
"""Free blocks of 1, 2, 4, ... pages, a line for each zone of memory."""
COMPACT = Path("/proc/sys/vm/compact_memory")
MIN_CONTIGUOUS = 0.25
"""Of the free memory; with less of it, it is reported as fragmented. Arbitrary."""
SOCKET_BUFFER = Path("/proc/sys/net/core/wmem_max")


def limits() -> list[CheckResult]:
    """Report the limits of this process, which daemons started from here have, too."""
    return [
        _descriptors(),
        _locked_memory(),
        _shared_memory(),
        _contiguous_memory(),
        _socket_buffer(),
    ]


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


def _contiguous_memory() -> CheckResult:
    """Report whether the kernel has memory for huge pages, by making one."""
    try:
        seconds = seconds_of_one_page()
    except OSError as error:
        is_short = error.errno in (errno.ENOMEM, errno.EAGAIN, errno.EBUSY)
        reason = "no contiguous memory" if is_short else "not on this system"
        made = f"none can be made ({reason}: {error.strerror})"
    else:
        made = f"one was made in {format_seconds(seconds)}"
    free, huge = _free_bytes()
    if not free:
        return CheckResult("huge pages", made)
    text = f"{made}; {format_bytes(huge)} of {format_bytes(free)} free memory is contiguous"
    if huge < MIN_CONTIGUOUS * free:
        text += (
            "; fragmented, so large arrays may get small pages, with slower kernels:"
            f' "echo 1 > {COMPACT}" (root) helps'
        )
    return CheckResult("huge pages", text)


def _free_bytes() -> tuple[int, int]:
    """Return the bytes that are free, and those of them in blocks of a huge page or more."""
    blocks = Counter[int]()
    with contextlib.suppress(OSError, ValueError):
        for line in BUDDY_INFO.read_text(encoding="ascii").splitlines():
            counts = line.partition("zone")[2].split()[1:]
            blocks.update({order: int(count) for order, count in enumerate(counts)})
    sizes = {order: count * mmap.PAGESIZE << order for order, count in blocks.items()}
    huge = sum(size for order, size in sizes.items() if mmap.PAGESIZE << order >= HUGE_BYTES)
    return sum(sizes.values()), huge


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
