"""A repeated job's commands are sent first; whatever happens between two jobs, they were right."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hetsched.config import parse
from hetsched.engine.early_starts import EarlyStarts
from hetsched.engine.job.driver import JobDriver
from hetsched.engine.processes.hosted_process import HostedProcess
from hetsched.engine.processes.orders_ahead import OrdersAhead
from hetsched.local import Local

TWO_PROCESSES = """
[[device]]
kind = "cpu"
count = 1
team = false

[[device]]
kind = "emulated"
name = "other"
compute = { unit = "1us" }
"""
MANY = 400
"""Jobs that may pass until the plan is settled: the search for variants ends before."""


class Log:
    """What an engine does, in its order, on its thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        for owner, name in (
            (OrdersAhead, "repeat"),
            (JobDriver, "begin"),
            (HostedProcess, "kill_misled"),
        ):
            self._note(monkeypatch, owner, name)

    def _note(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        function = getattr(owner, name)

        def noted(*arguments: Any) -> Any:
            self.events.append(name)
            return function(*arguments)

        monkeypatch.setattr(owner, name, noted)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


@pytest.fixture
def local(log: Log) -> Iterator[Local]:
    with Local(parse("[[device]]\nkind = 'cpu'\ncount = 1\n", "test"), learn=False) as local:
        yield local


class Repeated:
    """One request, again and again."""

    def __init__(self, local: Local, log: Log, **options: Any) -> None:
        self._local, self._log, self._options = local, log, options
        self.x, self.y = local.empty((2, 8, 8)), local.empty((2, 8, 8))

    def run(self, **options: Any) -> bool:
        """Run it once, with the right result; return whether its commands were sent first."""
        before = len(self._log.events)
        self.x[:] = np.random.default_rng(before).random(self.x.shape)
        self.y[:] = np.nan
        job = self._local.submit("fft", self.x, out=self.y, **{**self._options, **options})
        job.result(60)
        np.testing.assert_allclose(self.y, np.fft.fft2(self.x), rtol=1e-4, atol=1e-4)
        return self._log.events[before:] == ["repeat", "begin"]

    def settle(self) -> None:
        """Run it until its commands are sent first."""
        assert any(self.run() for _ in range(MANY))


def test_a_repeated_job_is_sent_before_its_driver_begins(local: Local, log: Log) -> None:
    Repeated(local, log).settle()

    assert "kill_misled" not in log.events


@pytest.mark.parametrize("options", [{"verify": True}, {"memory_limit": "1GiB"}])
def test_another_request_with_the_same_arrays_is_not(
    local: Local, log: Log, options: dict[str, Any]
) -> None:
    repeated = Repeated(local, log)
    repeated.settle()

    assert not repeated.run(**options)
    assert "kill_misled" not in log.events


def test_one_that_waits_is_not(local: Local, log: Log) -> None:
    repeated = Repeated(local, log)
    repeated.settle()

    before = len(log.events)
    held = local.submit("fft", repeated.x, out=repeated.y, hold=True)
    assert "repeat" not in log.events[before:]
    local.release(held.id)
    held.result(60)

    assert "kill_misled" not in log.events


def test_after_the_loss_of_its_process_it_is_sent_as_at_first(local: Local, log: Log) -> None:
    repeated = Repeated(local, log)
    repeated.settle()

    os.kill(local.pids()["cpu0"], signal.SIGKILL)

    repeated.run()
    repeated.settle()
    assert "kill_misled" not in log.events


def test_commands_that_the_job_does_not_give_cost_the_process_and_nothing_else(
    local: Local, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated = Repeated(local, log)
    repeated.settle()
    pids = local.pids()
    monkeypatch.setattr(EarlyStarts, "_holds", lambda *_: True)
    forget = local._engine._context.planning.kernels.forget
    local._call(lambda: forget(["cpu0"]))  # now it has to be answered

    while "kill_misled" not in log.events:
        repeated.run()

    monkeypatch.undo()
    assert local.pids() != pids


def test_an_error_of_ours_does_not_touch_the_job(
    local: Local, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated = Repeated(local, log)
    repeated.settle()

    def fails(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(EarlyStarts, "_begin", fails)
    repeated.run()
    monkeypatch.setattr(EarlyStarts, "_record", fails)
    repeated.run()


def test_whatever_happens_between_jobs_no_command_was_wrong(log: Log) -> None:
    rng = random.Random(7)
    victims = ["cpu0", "other"] * 2  # a device whose process dies three times is given up
    with Local(parse(TWO_PROCESSES, "test"), learn=False) as local:
        requests = [
            Repeated(local, log),
            Repeated(local, log, devices="cpu0"),
            Repeated(local, log, memory_limit="1GiB"),
        ]
        changes: list[Callable[[], object]] = [
            lambda: requests[0].run(verify=True),
            lambda: victims and os.kill(local.pids()[victims.pop()], signal.SIGKILL),
            lambda: local.switch_devices(disable=["other"]),
            lambda: local.switch_devices(enable=["other"]),
            lambda: local._call(local._arena.trim),
            lambda: requests.__setitem__(0, Repeated(local, log)),
            lambda: local.submit("fft", requests[1].x, out=requests[1].y, hold=True).cancel(),
        ]
        for _ in range(60):
            request = rng.choice(requests)
            for _ in range(rng.randrange(1, 12)):
                request.run()
            rng.choice(changes)()

    assert log.events.count("repeat") > 20
    assert "kill_misled" not in log.events
