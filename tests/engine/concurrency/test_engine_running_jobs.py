"""Messages and deaths of devices, passed to the drivers that they concern."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

from hetsched.engine.concurrency.running_jobs import RunningJobs
from hetsched.engine.run.runner import JobRunner
from hetsched.transport.device_messages import Filled, Pong


class Driver:
    """A driver that records what it is told."""

    def __init__(self, number: int, devices: Collection[str], side: str = "") -> None:
        self.number = number
        self.side = SimpleNamespace(core=side) if side else None
        self.attempt_id = 100 + number
        self.is_stopping = False
        self.calls: list[tuple[Any, ...]] = []
        self._devices = set(devices)

    def uses(self, devices: Collection[str]) -> bool:
        return not self._devices.isdisjoint(devices)

    def add_side_job(self) -> None:
        self.calls.append(("side job",))

    def withdraw(self) -> None:
        self.calls.append(("withdraw",))

    def on_message(self, device: str, message: Any) -> None:
        self.calls.append((device, message))

    def on_lost(
        self, devices: tuple[str, ...], reason: str, culprits: tuple[str, ...], *, counts: bool
    ) -> None:
        self.calls.append(("lost", devices, counts))


CPUS = ("cpu0", "cpu1")


def bench() -> tuple[RunningJobs, Driver, Driver]:
    main, side = Driver(1, CPUS), Driver(2, ["cpu0"], side="cpu0")
    jobs = RunningJobs()
    for driver in (main, side):
        jobs.add(cast(JobRunner, driver))
    return jobs, main, side


def test_a_message_goes_to_the_job_whose_attempt_it_names() -> None:
    jobs, main, side = bench()

    jobs.on_message("cpu0", Filled(102, 0))
    jobs.on_message("cpu0", Filled(77, 0))
    jobs.on_message("cpu0", Pong())

    assert (main.calls, side.calls) == ([], [("cpu0", Filled(102, 0))])


def test_a_death_is_not_counted_against_the_main_job_if_a_side_job_may_have_caused_it() -> None:
    jobs, main, side = bench()

    assert jobs.on_lost(CPUS, "crash", ())

    assert main.calls == [("lost", CPUS, False)]
    assert side.calls == [("withdraw",), ("lost", CPUS, True)]


def test_a_death_caused_on_another_core_is_counted_against_the_main_job() -> None:
    jobs, main, side = bench()

    assert not jobs.on_lost(CPUS, "crash", ("cpu1",))

    assert main.calls == [("lost", CPUS, True)]
    assert side.calls == [("lost", CPUS, False)]


def test_nobody_is_charged_with_a_cancelled_job_that_does_not_stop() -> None:
    jobs, main, side = bench()
    main.is_stopping = True

    jobs.on_lost(CPUS, "stopping takes longer than 5 s", ("cpu0",))

    assert main.calls == [("lost", CPUS, False)]
    assert side.calls == [("withdraw",), ("lost", CPUS, False)]


def test_side_jobs_outlive_the_main_one() -> None:
    jobs, main, side = bench()

    assert jobs.remove(1) is cast(JobRunner, main)

    assert jobs and jobs.main is None
    assert jobs.get(2) is cast(JobRunner, side)
    assert jobs.remove(2) is cast(JobRunner, side)
    assert not jobs


def test_a_main_job_shares_its_cores_with_the_side_jobs_that_still_run() -> None:
    jobs, _, _ = bench()
    jobs.remove(1)
    later = Driver(3, CPUS)

    jobs.add(cast(JobRunner, later))

    assert later.calls == [("side job",)]
