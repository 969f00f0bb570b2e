"""`hetsched doctor`: everything that a job needs, checked one by one. No daemon needed."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hetsched import paths
from hetsched.cli.connect import control
from hetsched.cli.output.terminal import clean, columns, out, out_json
from hetsched.cli.request_flags import ConfigName, Json
from hetsched.config import load
from hetsched.errors import ConfigError, HetschedError, InternalError, Unavailable
from hetsched.units import format_bytes, format_seconds

SCHEMA = "hetsched.doctor/1"
LIBZMQ = (4, 3, 5)
"""Older ones have holes that a local user could use, and abort where this one doesn't."""
REQUIRED = ("numpy", "scipy", "pyfftw", "pyzmq", "msgspec", "apsw", "typer", "rich")
OPTIONAL = {"mkl": "mkl", "ducc0": "ducc", "cupy": "cuda12", "matplotlib": "plot"}
"""Module or distribution -> the extra that brings it."""
SPARE = 1 << 30
"""Bytes of free disk below which a result file may not fit; arbitrary."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `code` 0: fine; else what a job would end with."""

    what: str
    found: str
    code: int = 0

    @property
    def mark(self) -> str:
        return "ok" if self.code == 0 else "PROBLEM"


def doctor(config: ConfigName = None, json: Json = False) -> int:
    """Check what jobs need; the exit code is the first problem's."""
    findings = [finding for one in _checks(config).items() for finding in _guarded(*one)]
    code = next((finding.code for finding in findings if finding.code), 0)
    if json:
        out_json({"schema": SCHEMA, "code": code, "findings": [_record(f) for f in findings]})
    else:
        rows = [(finding.mark, finding.what, finding.found) for finding in findings]
        for line in columns(("", "what", "found"), rows, left=3):
            out(clean(line))
    return code


def _record(finding: Finding) -> dict[str, str | int]:
    return {"what": finding.what, "found": finding.found, "code": finding.code}


Check = Callable[[], list[Finding]]


def _checks(config: str | None) -> dict[str, Check]:
    """Each with what its row is called if it can't be made."""
    return {
        "versions": versions,
        "libzmq": libzmq,
        "extras": extras,
        "cores": processor,
        "memory": memory,
        "folders": folders,
        "models": models,
        "config": lambda: configuration(config),
        "devices": lambda: devices(config),
        "daemon": daemon,
    }


def _guarded(name: str, check: Check) -> list[Finding]:
    """A check that can't be made is a finding too."""
    try:
        return check()
    except HetschedError as error:
        return [Finding(name, str(error), error.code)]
    except Exception as error:
        return [Finding(name, f"{type(error).__name__}: {error}", InternalError.code)]


def versions() -> list[Finding]:
    """Python and the libraries that must be there."""
    findings = [Finding("python", f"{platform.python_version()} on {platform.machine()}")]
    for name in ("hetsched", *REQUIRED):
        try:
            findings.append(Finding(name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            cure = f"not installed; pip install {name}"
            findings.append(Finding(name, cure, InternalError.code))
    return findings


def libzmq() -> list[Finding]:
    import zmq

    version = zmq.zmq_version_info()
    text = ".".join(map(str, version))
    if version < LIBZMQ:
        least = ".".join(map(str, LIBZMQ))
        return [Finding("libzmq", f"{text}; at least {least} is needed", InternalError.code)]
    return [Finding("libzmq", text)]


def extras() -> list[Finding]:
    """Libraries that make some jobs faster; none of them is needed."""
    return [
        Finding(name, _version(name) or f"not installed (extra {extra!r}); not needed")
        for name, extra in OPTIONAL.items()
    ]


def _version(name: str) -> str | None:
    """CuPy's distribution has another name than its module."""
    for distribution in (name, f"{name}-cuda12x", f"{name}-cuda13x"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def processor() -> list[Finding]:
    usable = len(os.sched_getaffinity(0))
    quota = _quota()
    text = f"{usable} of {os.cpu_count()} usable"
    if quota is not None:
        text += f", cgroup quota {quota:g} cores"
    return [Finding("cores", f"{text}; {_model()}")]


def _model() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return match[1] if match else platform.processor() or "unknown processor"


def _quota() -> float | None:
    """Cores that the cgroup (version 2) allows, None without a limit."""
    match = re.search(r"^0::(/.*)$", _text("/proc/self/cgroup"), re.MULTILINE)
    for folder in (f"/sys/fs/cgroup{match[1]}" if match else "", "/sys/fs/cgroup"):
        words = _text(f"{folder}/cpu.max").split()
        if len(words) == 2 and words[0] != "max":
            return int(words[0]) / int(words[1])
    return None


def memory() -> list[Finding]:
    table = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _text("/proc/meminfo"), re.MULTILINE))
    total, free = (1024 * int(table.get(key, 0)) for key in ("MemTotal", "MemAvailable"))
    text = f"{format_bytes(free)} of {format_bytes(total)} available; /dev/shm isn't used"
    return [Finding("memory", text)]


def folders() -> list[Finding]:
    findings = []
    for what, path in (
        ("runtime folder", paths.runtime_dir()),
        ("state folder", paths.state_dir()),
        ("cache folder", paths.cache_dir()),
    ):
        findings.append(_folder(what, path))
    longest = max(len(os.fsencode(p)) for p in (paths.endpoint_path(), paths.session_path()))
    if longest > paths.MAX_SOCKET_PATH:
        findings.append(Finding("runtime path", _too_long(longest), ConfigError.code))
    return findings


def _too_long(longest: int) -> str:
    return (
        f"{longest} bytes, a socket's path may have {paths.MAX_SOCKET_PATH};"
        " set HETSCHED_RUNTIME_DIR to a shorter one"
    )


def _folder(what: str, path: Path) -> Finding:
    """Looked at, not made: `doctor` changes nothing."""
    there = next(p for p in (path, *path.parents) if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding(what, f"{path}: not writable (at {there})", ConfigError.code)
    free = shutil.disk_usage(there).free
    missing = "" if there == path else ", made when needed"
    low = "; low" if free < SPARE else ""
    return Finding(what, f"{path}{missing}, {format_bytes(free)} free{low}")


def models() -> list[Finding]:
    """All of it is read: a database may be broken anywhere."""
    from hetsched.store.catalogue import collect

    path = paths.models_path()
    return [Finding("models", f"{path}: {len(collect(path).models) or 'nothing learnt yet'}")]


def configuration(name: str | None) -> list[Finding]:
    config, source = load(name)
    return [Finding("config", f"{source}: {len(config.device)} device tables")]


def devices(name: str | None) -> list[Finding]:
    from hetsched.devices.probe import probe

    try:
        config, _ = load(name)
    except HetschedError:
        return []  # `configuration` has said it
    found = probe(config)
    names = [info.name for process in found.processes for info in process.devices]
    code = 0 if names else Unavailable.code
    findings = [Finding("devices", ", ".join(names) or "none", code)]
    findings += [Finding(name, f"not available: {why}") for name, why in found.absent.items()]
    return findings


def daemon() -> list[Finding]:
    """No daemon is no problem: `run` needs none."""
    try:
        with control() as reached:
            pong = reached.ping()
    except Unavailable as error:
        return [Finding("daemon", f"{error}; not needed for `hetsched run`")]
    up = format_seconds(pong.uptime_seconds)
    return [Finding("daemon", f"pid {pong.pid}, version {pong.version}, up {up}")]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
