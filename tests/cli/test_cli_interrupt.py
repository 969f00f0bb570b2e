"""Ctrl-C at any moment: exit code 130, one line, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from hetsched.cli.commands import submit
from hetsched.client.job import Listener
from hetsched.errors import TryAgain
from hetsched.job import JobSpec, Queued

from .conftest import COMMAND, Call, Ended

LONG = ("fft", "--batch", "2000x256x256", "--output", "y.npy")
SLOW = ("--config", "slow.toml")
"""A dozen seconds or more."""


@pytest.fixture(autouse=True)
def slow() -> None:
    Path("slow.toml").write_text(
        "[[device]]\nkind = 'emulated'\ncompute = { unit = '6ms' }\n", encoding="utf-8"
    )


def heed() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that is stopped at the end, whatever became of it."""
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed,  # noqa: PLW1509 - pytest may have been started with SIGINT ignored
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(process: subprocess.Popen[str], word: str) -> str:
    """What it has said on standard error, up to the first line with `word`."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if word in line:
            return said
    raise AssertionError(f"never said {word!r}, but: {said}")


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=60)
    return Ended(process.returncode, out, err)


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def test_run_cancels() -> None:
    with started("run", *LONG, *SLOW) as process:
        until(process, "running 1")
        devices = children(process)
        process.send_signal(signal.SIGINT)
        end = ended(process)

    assert end.code == 130
    assert "cancelled" in end.error
    assert os.listdir() == ["slow.toml"]
    assert psutil.wait_procs(devices, timeout=60)[1] == []


BLOCKING = """
import time
from pathlib import Path

from hetsched.workload import Variant
from hetsched_workloads.fft import Fft


class Blocking(Fft):
    name = "blocking"

    def variants(self, kind):
        return [Variant("blocking", "1", make)] if kind == "cpu" else []


def make(p, chunk, context):
    def kernel(inputs, outputs):
        Path(__file__).with_name("started").touch()
        time.sleep(100)

    return kernel
"""
"""A workload whose kernel says that it has started, and then takes longer than any test waits."""


def test_a_second_ctrl_c_does_not_wait_for_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("blocking.py").write_text(BLOCKING)
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with started("run", "blocking:Blocking", "--batch", "4x8x8", "--devices", "cpu") as process:
        while not Path("started").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        devices = children(process)
        process.send_signal(signal.SIGINT)
        until(process, "Ctrl-C again")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        end = ended(process)

    assert end.code == 130
    assert "aborted" in end.error
    assert "died" not in end.err
    assert sorted(os.listdir()) == ["blocking.py", "slow.toml", "started"]
    assert psutil.wait_procs(devices, timeout=60)[1] == []


@pytest.mark.parametrize("tenths", [0, 1, 2, 3, 4, 6, 9])
def test_any_moment_is_good_for_it(tenths: int) -> None:
    with started("run", *LONG, *SLOW) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05 + tenths / 10)
        devices = children(process)
        process.send_signal(signal.SIGINT)
        end = ended(process)

    # Before main() has begun it is the interpreter that ends, by the signal or in its own start.
    interrupted_start = ("Fatal Python error: init", "Could not import runpy module")
    assert end.code in (130, -signal.SIGINT) or end.err.startswith(interrupted_start)
    assert os.listdir() == ["slow.toml"]
    assert psutil.wait_procs(devices, timeout=60)[1] == []


@pytest.fixture
def daemon() -> Iterator[subprocess.Popen[str]]:
    with started("serve", *SLOW) as process:
        until(process, "listening")
        yield process


@pytest.mark.usefixtures("daemon")
def test_submit_detaches_and_the_job_goes_on() -> None:
    with started("submit", *LONG) as process:
        until(process, "running 1")
        process.send_signal(signal.SIGINT)
        end = ended(process)
    with started("status") as status:
        jobs = ended(status)
    with started("cancel", "1") as cancel:
        assert ended(cancel).code == 0

    assert end.code == 130
    assert "hetsched cancel 1" in end.err
    assert "continues" in end.error
    assert "running" in jobs.out


@pytest.mark.usefixtures("daemon")
def test_a_second_ctrl_c_cancels() -> None:
    with started("submit", *LONG) as process:
        until(process, "running 1")
        process.send_signal(signal.SIGINT)
        until(process, "continues")
        process.send_signal(signal.SIGINT)
        end = ended(process)
    with started("wait", "1") as wait:
        waited = ended(wait)

    assert end.code == 130
    assert "was cancelled" in end.error
    assert waited.code == 130
    assert os.listdir() == ["slow.toml"]


@pytest.mark.usefixtures("daemon")
def test_wait_gives_up_in_time_and_the_job_goes_on() -> None:
    with started("submit", *LONG, "--detach") as submit:
        assert ended(submit).out == "submitted 1\n"
    with started("wait", "1", "--timeout", "50ms") as wait:
        end = ended(wait)
    with started("show", "1") as show:
        shown = ended(show)

    assert end.code == 124
    assert "50ms" in end.error
    assert shown.out.split()[2] in ("queued", "running")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_ends_in_good_order(daemon: subprocess.Popen[str], number: int) -> None:
    devices = children(daemon)

    daemon.send_signal(number)
    end = ended(daemon)

    assert end.code == 0
    assert "stopped" in end.err
    assert psutil.wait_procs(devices, timeout=60)[1] == []


def test_a_second_daemon_is_refused(daemon: subprocess.Popen[str]) -> None:
    with started("serve") as second:
        end = ended(second)

    assert end.code == 78
    assert str(daemon.pid) in end.error
    assert len(end.err.splitlines()) == 1


@pytest.mark.usefixtures("daemon")
def test_the_commands_of_the_daemon_work_together() -> None:
    found = {}
    for words in (
        ("submit", "fft", "--batch", "2x8x8"),
        ("ping",),
        ("status",),
        ("show", "1"),
        ("show", "7"),
        ("result", "1", "-o", "out.npy"),
        ("result", "1"),
        ("wait", "1", "--json"),
        ("cancel", "1"),
    ):
        with started(*words) as process:
            found[words] = ended(process)

    codes = {words: end.code for words, end in found.items()}
    assert codes.pop(("show", "7")) == 66
    assert set(codes.values()) == {0}, codes
    assert sorted(os.listdir()) == ["out.npy", "slow.toml"]
    assert "2x8x8 complex64" in found["result", "1"].out
    assert '"state":"done"' in found["wait", "1", "--json"].out


class Slow:
    """A daemon that has the job, and tells its number (if `taken`) only after a Ctrl-C."""

    def __init__(self, taken: bool) -> None:
        self._taken = taken

    def start(self, spec: JobSpec, follow: Listener) -> None:
        if self._taken:
            threading.Timer(0.0, lambda: follow(Queued(7, 0))).start()
        raise KeyboardInterrupt

    def cancel(self, job: int) -> None:
        raise AssertionError(job)


@pytest.mark.parametrize(("taken", "words"), [(True, "job 7, which continues"), (False, "status")])
def test_an_interrupted_submit_tells_what_became_of_the_job(
    call: Call, monkeypatch: pytest.MonkeyPatch, taken: bool, words: str
) -> None:
    monkeypatch.setattr(submit, "control", lambda: contextlib.nullcontext(Slow(taken)))
    monkeypatch.setattr(submit, "GRACE_SECONDS", 10.0 if taken else 0.0)
    monkeypatch.setattr(submit, "note", lambda line: None)
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    end = call("submit", "fft", "--batch", "4x16x16")

    assert end.code == 130
    assert words in end.error


def test_a_job_that_can_not_be_cancelled_by_a_second_press_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    def cancel(number: int) -> None:
        raise TryAgain("the daemon has stopped")

    monkeypatch.setattr(time, "sleep", interrupted)
    error = submit._detached(7, cancel)
    assert str(error) == "interrupted twice; job 7 wasn't cancelled: the daemon has stopped"
    assert "was cancelled" in str(submit._detached(7, lambda number: None))
