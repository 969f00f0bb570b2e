"""The command line in this process and as a separate process, with separate folders."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hetsched_workloads.fft import Fft
from served import CORES, Daemon, Ended, call_here, serving

DEFAULT_FFT = next(each.name for each in Fft().variants("cpu") if each.name != "pyfftw")
"""The variant that FFTs start with on this processor, with the libraries installed here: not
FFTW, which has to plan first."""
COMMAND = (sys.executable, "-m", "hetsched.cli.main")


Call = Callable[..., Ended]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the user's is read or written; a terminal of 80 columns without colours."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("HETSCHED_CONFIG", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HETSCHED_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("HETSCHED_STATE_DIR", str(folder / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon for all tests of a module, with the configuration that the module calls DEVICES."""
    with serving(getattr(request.module, "DEVICES", CORES)) as daemon:
        yield daemon


@pytest.fixture
def daemon(served: Daemon, home: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """Commands find it."""
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(served.folder / "run"))
    return served


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """Run a command in this process."""
    return functools.partial(call_here, capfd)


@pytest.fixture
def shell() -> Call:
    """Run a command as a process of its own."""

    def run(*words: str, **more: object) -> Ended:
        done = subprocess.run(  # type: ignore[call-overload]
            [*COMMAND, *words],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=dict(os.environ),
            timeout=60,
            check=False,
            **more,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run
