"""The systemd units: accepted by systemd, hardened, and not so hard that jobs fail."""

from __future__ import annotations

import ctypes
import errno
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from real_daemon import SERVE, environment
from service_manager import notify_socket

from hetsched.cli.commands.service import unit_texts
from hetsched.client.client import Client

MAX_EXPOSURE = 62
"""In tenths. Most of the rest needs privileges that a user's service manager doesn't have."""
SECONDS = 120

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is missing (Debian: apt-get install systemd)",
)

UNDER_FILTER = """
import ctypes, os, sys
allowed, program = sys.argv[1].split(","), sys.argv[2:]
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
rules = ctypes.c_void_p(library.seccomp_init(0x00050000 | {errno}))
for name in allowed:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        assert library.seccomp_rule_add(rules, 0x7FFF0000, number, 0) == 0
assert library.seccomp_load(rules) == 0
os.execv(program[0], program)
"""
"""Runs a program with a list of system calls; others fail, as SystemCallErrorNumber= wants it."""


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The unit files of this installation."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HETSCHED_CONFIG", "cpu-only")
    paths = []
    for name, text in unit_texts(None).items():
        path = tmp_path / name
        path.write_text(text)
        paths.append(str(path))
    return paths


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@needs_systemd
def test_systemd_accepts_the_units_of_this_installation(units: list[str]) -> None:
    result = analyze("--user", "verify", *units)

    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


@needs_systemd
def test_the_exposure_of_the_service_is_low(units: list[str]) -> None:
    service = next(path for path in units if path.endswith(".service"))
    result = analyze("security", "--offline=true", f"--threshold={MAX_EXPOSURE}", service)

    assert result.returncode == 0, result.stdout.splitlines()[-1:]


def filtered(units: list[str], command: list[str]) -> list[str]:
    """`command` with the system calls that the service allows, and no others."""
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp.so.2 is missing (Debian: apt-get install libseccomp2)")
    service = next(Path(path) for path in units if path.endswith(".service"))
    allowed = ",".join(sorted(allowed_calls(service.read_text())))
    script = UNDER_FILTER.format(errno=errno.EPERM)
    return [sys.executable, "-c", script, allowed, *command]


@needs_systemd
def test_a_daemon_runs_with_the_system_calls_that_the_service_allows(
    tmp_path: Path, units: list[str]
) -> None:
    tmp_path.chmod(0o700)
    x = np.arange(1024.0).reshape(4, 16, 16).astype("complex64")
    with notify_socket(tmp_path) as notified, (tmp_path / "log").open("wb") as log:
        variables = environment(tmp_path) | {"NOTIFY_SOCKET": notified.address}
        daemon = subprocess.Popen(filtered(units, SERVE), env=variables, stderr=log)
        try:
            notified.until("READY=1")
            with Client(tmp_path) as client:
                volatile = client.submit("fft", x).result(SECONDS)
                path = tmp_path / "y.npy"
                client.submit("fft", batch="4x16x16", out=str(path)).result(SECONDS)
        finally:
            daemon.terminate()
            assert daemon.wait(SECONDS) == 0

    assert np.allclose(volatile, np.fft.fft2(x), atol=1.0)
    assert np.load(path).shape == (4, 16, 16)
    assert " ERROR " not in (tmp_path / "log").read_text()


def allowed_calls(service: str) -> set[str]:
    """The system calls of the SystemCallFilter lines, and those that systemd always allows."""
    allowed: set[str] = set()
    for line in service.splitlines():
        words = line.removeprefix("SystemCallFilter=").split()
        if not line.startswith("SystemCallFilter="):
            continue
        if words[0].startswith("~"):
            allowed -= expanded([words[0][1:], *words[1:]])
        else:
            allowed |= expanded(words)
    assert allowed
    return allowed | expanded(["@default"])


def expanded(names: list[str]) -> set[str]:
    calls: set[str] = set()
    for name in names:
        if not name.startswith("@"):
            calls.add(name)
            continue
        lines = analyze("syscall-filter", name).stdout.splitlines()[1:]
        members = [line.strip() for line in lines]
        calls |= expanded([member for member in members if member and member[0] != "#"])
    return calls
