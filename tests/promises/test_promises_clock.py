"""The wall clock may be set while a daemon runs: what is stored and listed follows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import PLUG_INS, Daemon, ended, serving, until

import hetsched

CLOCK = """
import datetime, pathlib, sys, time

real = time.time

def shifted():
    return real() + float(pathlib.Path(__file__).with_name("shift").read_text())

class Datetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(shifted(), tz)

time.time = shifted
if "serve" not in sys.orig_argv:  # the daemon stores dates, of the real type
    datetime.datetime = Datetime
"""
"""Python runs a module of this name first, here in the daemon, its children and the commands."""
DAY = 86_400
SUBMIT = ("submit", "fft", "--batch", "1x8x8", "--parsable")


class Clock:
    """That of a daemon and its commands. A module's tests share it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.now = folder / "shift", 0.0
        (folder / "sitecustomize.py").write_text(CLOCK)
        self.shift(0)

    def shift(self, seconds: float) -> None:
        self.now += seconds
        self.path.with_name("next").write_text(str(self.now))
        self.path.with_name("next").replace(self.path)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def daemon(clock: Clock) -> Iterator[Daemon]:
    with serving(PYTHONPATH=f"{PLUG_INS}:{clock.path.parent}") as daemon:
        yield daemon


def run_job(daemon: Daemon, *options: str) -> int:
    submitted = daemon.call(*SUBMIT, *options)
    assert submitted.code == 0, submitted.err
    return int(submitted.out.split()[0])


def last_hour(daemon: Daemon) -> set[int]:
    return {job["job"] for job in daemon.call("history", "-S", "1h", "--json").json["jobs"]}


def test_history_and_deadlines_follow_a_clock_that_was_set(daemon: Daemon, clock: Clock) -> None:
    for shift in (2 * DAY, -2 * DAY):
        first = run_job(daemon)
        clock.shift(shift)
        second = run_job(daemon, "--deadline", "10min")
        found = last_hour(daemon)
        assert second in found
        assert (first in found) == (shift < 0), "it was submitted two days from now"

    daemon.kill()
    daemon.start()
    third = run_job(daemon)
    assert third > second
    assert {second, third} <= last_hour(daemon)


def test_a_deadline_that_the_clock_has_passed_ends_a_waiting_job(
    daemon: Daemon, clock: Clock
) -> None:
    held = ("submit", "fft", "--batch", "1x8x8", "--hold", "--deadline", "1h")
    with daemon.started(*held) as process, daemon.client() as client:
        until(lambda: client.status(("held",)))
        clock.shift(DAY)
        run_job(daemon, "--deadline", "10min")  # or a minute later
        done = ended(process)
    assert (done.code, "deadline" in done.error) == (1, True)


def test_after_a_kill_a_job_continues_from_its_own_checkpoint_alone(
    daemon: Daemon, clock: Clock, tmp_path: Path
) -> None:
    path = tmp_path / "job.npz"
    np.save(tmp_path / "x.npy", np.ones((24, 4)))

    def submit(client: Any, name: str, every: str) -> hetsched.Job:
        slow = {"slow_until": str(tmp_path / name), "checkpoint": path, "every": every}
        return client.submit("toys:Diffusion", tmp_path / "x.npy", iterations=300, **slow)

    def restart() -> None:
        daemon.kill()
        daemon.start()

    with daemon.client() as client:
        earlier = submit(client, path.name, "50ms")
        earlier.result(60)
        left = path.stat()
        clock.shift(-20 * DAY)  # what was left seems to be of this job
        without = submit(client, "without", "1h")
        until((tmp_path / "without.begun").exists)
        restart()
        (tmp_path / "without").touch()
        without.result(60)
        assert not without.report.continued_after
        assert path.stat().st_ino == left.st_ino

        own = submit(client, "own", "50ms")
        until(lambda: path.stat().st_ino != left.st_ino)
        restart()
        (tmp_path / "own").touch()
        own.result(60)
        assert own.report.continued_after > 0
