"""Check cores, memory and folders. Creates nothing."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
from collections import Counter
from pathlib import Path

from hetsched import paths
from hetsched.cli.commands.doctor.check_result import CheckResult
from hetsched.devices.cpu.topology import memory_nodes, one_per_core, read_topology
from hetsched.errors import ConfigError
from hetsched.machine_limits import ControlGroups
from hetsched.units import counted, format_bytes

MIN_FREE_BYTES = 1 << 30
"""Less free disk is reported as low; arbitrary."""


def cores() -> list[CheckResult]:
    """Report the usable cores and the processor."""
    usable = len(os.sched_getaffinity(0))
    quota = ControlGroups().cores()
    text = f"{usable} of {os.cpu_count()} usable"
    if quota < math.inf:
        text += f", the control group allows {quota:g} at once"
    return [CheckResult("cores", f"{text}; {_processor()}"), *_topology()]


def _topology() -> list[CheckResult]:
    """Report physical cores, core types and NUMA nodes."""
    threads = read_topology(sorted(os.sched_getaffinity(0)))
    physical = one_per_core(threads)
    parts = [f"{counted(len(physical), 'physical core')}, {counted(len(threads), 'thread')}"]
    types = Counter(core.core_type for core in physical if core.core_type)
    parts += [f"{count} {core_type}" for core_type, count in types.items()]
    nodes = memory_nodes()
    if len(nodes) > 1:
        parts.append(f"{len(nodes)} NUMA nodes (numactl --interleave=all hetsched serve)")
    return [CheckResult("topology", "; ".join(parts))]


def memory() -> list[CheckResult]:
    """Report the available memory."""
    table = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read("/proc/meminfo"), re.MULTILINE))
    total, free = (1024 * int(table.get(key, 0)) for key in ("MemTotal", "MemAvailable"))
    text = f"{format_bytes(free)} of {format_bytes(total)} available"
    groups = ControlGroups()
    limit = groups.memory_limit()
    if limit < total:
        free = max(0, int(groups.memory()))
        text += f"; the control group has {format_bytes(int(limit))}, {format_bytes(free)} free"
    text += "; /dev/shm isn't used"
    return [CheckResult("memory", text)]


def folders() -> list[CheckResult]:
    """Check that the folders are writable and the sockets' paths short enough."""
    results = [
        _folder("runtime folder", paths.runtime_dir()),
        _folder("state folder", paths.state_dir()),
        _folder("cache folder", paths.cache_dir()),
    ]
    longest = max(len(os.fsencode(p)) for p in (paths.endpoint_path(), paths.session_path()))
    if longest > paths.MAX_SOCKET_PATH:
        text = (
            f"{longest} bytes, a socket's path may have {paths.MAX_SOCKET_PATH};"
            " set HETSCHED_RUNTIME_DIR to a shorter one"
        )
        results.append(CheckResult("runtime path", text, ConfigError.code))
    return results


def _folder(name: str, path: Path) -> CheckResult:
    existing = next(p for p in (path, *path.parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return CheckResult(name, f"{path}: not writable (at {existing})", ConfigError.code)
    free = shutil.disk_usage(existing).free
    missing = "" if existing == path else ", will be created"
    low = "; low" if free < MIN_FREE_BYTES else ""
    return CheckResult(name, f"{path}{missing}, {format_bytes(free)} free{low}")


def _processor() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return match[1] if match else platform.processor() or "unknown processor"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
