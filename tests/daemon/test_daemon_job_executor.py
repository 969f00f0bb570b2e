"""The executor of commands about jobs: those of an earlier daemon reach the engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest
from daemon_story import Story

from hetsched.daemon import commands as do
from hetsched.daemon.job_executor import JobExecutor
from hetsched.engine.engine import Readmission
from hetsched.job import JobSpec

FAST, SLOW = JobSpec(workload="fast", params={}), JobSpec(workload="slow", params={})


class Engine:
    """Answers for workload "fast" at once, for "slow" when `answer` is called."""

    def __init__(self) -> None:
        self.is_paused = False
        self.submitted: list[int] = []
        self.answers: list[Callable[[], None]] = []

    def submit(
        self, spec: JobSpec, reply: Any, on_state: Any, *, number: int, **more: Any
    ) -> None:
        self.submitted.append(number)
        if spec is FAST:
            reply(number)
        else:
            self.answers.append(lambda: reply(number))

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False


class Rounds:
    """The loop: `run` runs what was called soon; `timers` are what is called later."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self.timers: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._calls.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers.append(callback)

    def run(self) -> None:
        while self._calls:
            self._calls.popleft()()


class Setting:
    def __init__(self) -> None:
        self.engine, self.loop, self.story = Engine(), Rounds(), Story()
        executor = JobExecutor(
            self.story.core, cast(Any, self.loop), cast(Any, None), cast(Any, self.engine),
            cast(Any, None), lambda commands: None,
        )  # fmt: skip
        self._submit = executor.executors()[do.SubmitJob]

    def readmit(self, spec: JobSpec, number: int) -> None:
        entry = self.story.core.ledger.new_entry(spec, 0, 0.0, number, "")
        entry.is_accepted = entry.is_confirmed = entry.is_readmitted = True
        self._submit(do.SubmitJob(entry.ticket, spec, number, Readmission()))


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_the_engine_starts_no_job_until_all_earlier_ones_are_there(setting: Setting) -> None:
    for number in range(1, 101):
        setting.readmit(FAST, number)
    assert setting.engine.is_paused and setting.engine.submitted == []
    setting.loop.run()
    assert setting.engine.submitted == list(range(1, 101))
    assert not setting.engine.is_paused


def test_a_job_whose_files_are_still_checked_keeps_the_others_waiting(setting: Setting) -> None:
    setting.readmit(SLOW, 1)
    setting.loop.run()
    assert setting.engine.is_paused
    setting.engine.answers[0]()
    setting.loop.run()
    assert not setting.engine.is_paused


def test_a_job_that_comes_back_during_a_check_reaches_the_engine(setting: Setting) -> None:
    setting.readmit(SLOW, 1)
    setting.loop.run()
    setting.readmit(FAST, 2)
    setting.loop.run()
    assert setting.engine.submitted == [1, 2]
    setting.engine.answers[0]()
    setting.loop.run()
    assert not setting.engine.is_paused


def test_a_check_that_hangs_keeps_the_others_waiting_for_a_limited_time(setting: Setting) -> None:
    setting.readmit(SLOW, 1)
    setting.loop.run()
    setting.loop.timers[0]()
    assert not setting.engine.is_paused
