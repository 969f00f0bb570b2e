"""`hetsched doctor`: check everything that a job needs. No daemon needed; creates nothing."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import re
import resource
import shutil
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from hetsched import paths
from hetsched.cli.flags import Cluster, ConfigName, Insecure, Json
from hetsched.cli.hosts import check_hosts
from hetsched.cli.terminal import answer
from hetsched.config import load, located
from hetsched.errors import ConfigError, HetschedError, InternalError, Unavailable, to_record
from hetsched.machine_limits import ControlGroups, free_memory, processor
from hetsched.text import columns
from hetsched.units import counted, format_bytes, format_seconds

COLUMNS = 100  # Longer lines are wrapped
MIN_LIBZMQ = (4, 3, 5)
"""Older versions are vulnerable to local users and abort the process more often."""
FOR_DEVELOPERS = {"demo", "docs", "test", "dev", "bench"}  # Extras
MIN_DESCRIPTORS = 4096  # Less may be too little for a daemon with many clients; arbitrary
MIN_FREE_BYTES = 1 << 30  # Less free disk is reported as low; arbitrary
SQLITE = b"SQLite format 3\0"


class Finding(msgspec.Struct, frozen=True):
    """One row of the report: subject, result. `code`: 0, or the exit code of jobs that need it."""

    what: str
    found: str
    code: int = 0


def doctor(
    config: ConfigName = None,
    cluster: Cluster = None,
    insecure: Insecure = False,
    json: Json = False,
) -> int:
    if cluster is not None:
        return check_hosts(cluster, insecure, json)
    checks = (versions, cores, memory, limits, folders, models, journal)
    findings = [finding for check in checks for finding in _run(check.__name__, check)]
    findings += _run("config", lambda: configuration(config))
    findings += _run("daemon", daemon)
    code = next((finding.code for finding in findings if finding.code), 0)
    head = columns(("", ""), [("PROBLEM" if f.code else "ok", f.what) for f in findings], 2)[1:]
    indent = max(map(len, head)) + 2
    wrapper = textwrap.TextWrapper(
        COLUMNS, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    rows = [f"{start:{indent}}{f.found}" for start, f in zip(head, findings, strict=True)]
    lines = [line for row in rows for line in wrapper.wrap(row)]
    answer(json, "doctor/1", {"code": code, "findings": findings}, lines)
    return code


def _run(name: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Run one check; an exception is reported as a problem."""
    try:
        return check()
    except Exception as error:
        record = to_record(error)
        return [Finding(name, record.message, record.code)]


# ---- software


def versions() -> list[Finding]:
    """Check Python, the required libraries, and those that make some jobs faster."""
    found = [Finding("python", f"{platform.python_version()} on {platform.machine()}")]
    for each in ["hetsched", *(importlib.metadata.requires("hetsched") or ())]:
        name, extra = re.split(r"[^\w.-]", each)[0], re.search(r"extra == ['\"](\w+)", each)
        if extra and extra[1] in FOR_DEVELOPERS:
            continue
        hint = f" (extra {extra[1]!r}); optional" if extra else f"; pip install {name}"
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        code = 0 if version or extra else InternalError.code
        found.append(Finding(name, version or f"not installed{hint}", code))
    import zmq

    libzmq, least = (".".join(map(str, v)) for v in (zmq.zmq_version_info(), MIN_LIBZMQ))
    if zmq.zmq_version_info() >= MIN_LIBZMQ:
        return [*found, Finding("libzmq", libzmq)]
    needed = f"{libzmq}; {least} or newer needed"
    return [*found, Finding("libzmq", needed, InternalError.code)]


# ---- the machine


def cores() -> list[Finding]:
    """Report usable cores, the processor, core types and NUMA nodes."""
    from hetsched.devices.cpu.topology import memory_nodes, one_per_core, read_topology

    usable = sorted(os.sched_getaffinity(0))
    text = f"{len(usable)} of {os.cpu_count()} usable"
    if (quota := ControlGroups().cores()) < math.inf:
        text += f", the control group allows {quota:g} at once"
    threads = read_topology(usable)
    physical = one_per_core(threads)
    parts = [f"{counted(len(physical), 'physical core')}, {counted(len(threads), 'thread')}"]
    types = Counter(core.core_type for core in physical if core.core_type)
    parts += [f"{count} {core_type}" for core_type, count in types.items()]
    if (nodes := len(memory_nodes())) > 1:
        parts.append(f"{nodes} NUMA nodes (numactl --interleave=all hetsched serve)")
    return [Finding("cores", f"{text}; {processor()}"), Finding("topology", "; ".join(parts))]


def memory() -> list[Finding]:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = ControlGroups().memory_limit()
    text = f"{format_bytes(free_memory())} of {format_bytes(total)} available"
    if limit < total:
        text += f"; the control group has {format_bytes(limit)}"
    return [Finding("memory", f"{text}; /dev/shm isn't used")]


def limits() -> list[Finding]:
    """Report limits of this process, which daemons started from here have, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = {resource.RLIM_INFINITY: "unlimited"}
    text = endless.get(soft, str(soft))
    if soft != hard:
        text += f", a daemon raises that to {endless.get(hard, hard)}"
    if hard != resource.RLIM_INFINITY and hard < MIN_DESCRIPTORS:
        text += f"; low: jobs are refused when they run out (ulimit -Hn {MIN_DESCRIPTORS})"
    return [Finding("descriptors", text)]


def folders() -> list[Finding]:
    """Check that the folders are writable and the sockets' paths short enough."""
    places = {"runtime": paths.runtime_dir, "state": paths.state_dir, "cache": paths.cache_dir}
    found = [_folder(f"{name} folder", path()) for name, path in places.items()]
    longest = max(len(os.fsencode(p)) for p in (paths.endpoint_path(), paths.session_path()))
    if longest > paths.MAX_SOCKET_PATH:
        limit = f"a socket's path may have {paths.MAX_SOCKET_PATH}"
        text = f"{longest} bytes, {limit}; set HETSCHED_RUNTIME_DIR to a shorter one"
        found.append(Finding("runtime path", text, ConfigError.code))
    return found


def _folder(name: str, path: Path) -> Finding:
    existing = next(p for p in (path, *path.parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding(name, f"{path}: not writable (at {existing})", ConfigError.code)
    free = shutil.disk_usage(existing).free
    missing = "" if existing == path else ", will be created"
    low = "; low" if free < MIN_FREE_BYTES else ""
    return Finding(name, f"{path}{missing}, {format_bytes(free)} free{low}")


# ---- hetsched's own


def models() -> list[Finding]:
    """Read all models, since any page of a database may be damaged."""
    from hetsched.store.model_store import collect

    path = paths.models_path()
    count = len(collect(path).models)
    return [Finding("models", f"{path}: {counted(count, 'model') if count else 'none yet'}")]


def journal() -> list[Finding]:
    """Report the journal's file, without opening it by SQLite: the daemon holds it."""
    path = paths.journal_path()
    try:
        with path.open("rb") as file:
            start, status = file.read(len(SQLITE)), path.stat()
    except FileNotFoundError:
        return [Finding("journal", f"{path}: none yet")]
    except OSError as error:
        return [Finding("journal", f"{path}: {error.strerror}", ConfigError.code)]
    if start not in (b"", SQLITE):
        text = f"{path}: not a journal of hetsched; move it away"
        return [Finding("journal", text, ConfigError.code)]
    age = format_seconds(max(0.0, time.time() - status.st_mtime))
    return [Finding("journal", f"{path}: {format_bytes(status.st_size)}, written {age} ago")]


def configuration(name: str | None) -> list[Finding]:
    """Check that the configuration is valid and there is a device; report missing ones."""
    from hetsched.devices.probe import probe

    config, source = load(name)
    found = [Finding("config", f"{source}: {len(config.device)} device tables")]
    try:
        with located(source):
            machine = probe(config)
    except HetschedError as error:
        return [*found, Finding("devices", str(error), error.code)]
    devices = [process.device for process in machine.processes]
    names = [device.name for device in devices if not device.members]
    found.append(Finding("devices", ", ".join(names) or "none", 0 if names else Unavailable.code))
    return found + [Finding(n, f"not available: {why}") for n, why in machine.absent.items()]


def daemon() -> list[Finding]:
    """Report the daemon; none is needed for `run`, so its absence isn't an error."""
    from hetsched.client.control import Control

    try:
        with Control() as connection:
            pong, listed = connection.ping(), connection.device_list()
    except Unavailable as error:
        return [Finding("daemon", f"{error}; not needed for `hetsched run`")]
    uptime = format_seconds(pong.uptime_seconds)
    found = [Finding("daemon", f"pid {pong.pid}, version {pong.version}, up {uptime}")]
    found += [Finding(f"daemon: {n}", f"takes no jobs: {why}") for n, why in listed.absent.items()]
    found += [Finding(f"daemon: {name}", why) for name, why in listed.restricted.items()]
    return found
