"""The wall clock may be set while a daemon runs: what is stored and listed follows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Daemon, ended, serving, until
from toys import diffused

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


class ShiftedDaemon(Daemon):
    """A daemon whose clock, and that of its commands, can be set."""

    def shift(self, seconds: float) -> None:
        path = self.folder / "clock" / "shift"
        path.with_name("next").write_text(str(seconds))
        path.with_name("next").replace(path)

    def run_job(self, *options: str) -> int:
        submitted = self.call(*SUBMIT, *options)
        assert submitted.code == 0, submitted.err
        return int(submitted.out.split()[0])

    def since(self, age: str) -> list[int]:
        return [job["job"] for job in self.call("history", "-S", age, "--json").json["jobs"]]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ShiftedDaemon]:
    with serving() as other:
        daemon = ShiftedDaemon(other.folder)
        folder = daemon.folder / "clock"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(CLOCK)
        daemon.shift(0)
        daemon.environment["PYTHONPATH"] += f":{folder}"
        other.stop()
        daemon.start()
        other.process = daemon.process
        yield daemon
        if daemon.process.poll() is None:
            daemon.stop()


@pytest.mark.parametrize("shift", [2 * DAY, -2 * DAY])
def test_history_and_deadlines_follow_a_clock_that_was_set(
    daemon: ShiftedDaemon, shift: int
) -> None:
    first = daemon.run_job()
    daemon.shift(shift)
    second = daemon.run_job("--deadline", "10min")
    assert second in daemon.since("1h")
    assert (first in daemon.since("1h")) == (shift < 0), "it was submitted two days from now"

    daemon.kill()
    daemon.start()
    third = daemon.run_job()
    assert third > second
    assert {second, third} <= set(daemon.since("1h")), daemon.call("history").out


def test_a_deadline_that_the_clock_has_passed_ends_a_waiting_job(daemon: ShiftedDaemon) -> None:
    held = ("submit", "fft", "--batch", "1x8x8", "--hold", "--deadline", "1h")
    with daemon.started(*held) as process:
        until(lambda: "held" in daemon.call("status").out)
        daemon.shift(DAY)
        daemon.run_job()  # whatever happens next finds it
        done = ended(process)
    assert (done.code, "deadline" in done.error) == (1, True)


@pytest.mark.parametrize("shift", [2 * DAY, -2 * DAY])
def test_a_job_continues_from_a_checkpoint_that_looks_old_or_new(
    daemon: ShiftedDaemon, shift: int
) -> None:
    path, go = daemon.folder / "job.npz", daemon.folder / "go"
    with daemon.client() as client:
        job: Any = client.submit(
            "toys:Diffusion",
            rows=24,
            iterations=300,
            seed=5,
            checkpoint=path,
            every=0.1,
            slow_until=str(go),
            out=daemon.folder / "y.npy",
        )
        until(path.exists)
        daemon.shift(shift)
        saved = path.stat().st_ino
        until(lambda: path.stat().st_ino != saved)  # it is still written
        daemon.kill()
        daemon.start()
        go.touch()
        job.result(60)
        assert job.report.continued_after > 0
    x = np.array([np.random.default_rng((5, row)).standard_normal(4) for row in range(24)])
    np.testing.assert_allclose(np.load(daemon.folder / "y.npy"), diffused(x, 300))
