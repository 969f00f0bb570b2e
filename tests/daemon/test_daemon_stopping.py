import subprocess
import sys
from collections.abc import Callable

import pytest

from hetsched.daemon import stopping
from hetsched.daemon.stopping import EXIT_STUCK, ExitGuard, StopLadder, StopStage
from hetsched.daemon.systemd import ServiceManager

DRAIN_SECONDS = 7.0


class Stop:
    """A ladder whose steps are recorded; timers run when the test says so."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.timers: dict[float, Callable[[], None]] = {}
        self.on_drained: Callable[[], None] = lambda: None
        self.ladder = StopLadder(
            self,  # type: ignore[arg-type]
            ServiceManager(),
            self._drain,
            lambda: self.steps.append("kill"),
            DRAIN_SECONDS,
        )

    def _drain(self, on_drained: Callable[[], None]) -> None:
        self.steps.append("drain")
        self.on_drained = on_drained

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers[seconds] = callback

    def stop(self) -> None:
        self.steps.append("stop")


def test_a_first_signal_drains_and_the_end_of_jobs_stops_the_loop() -> None:
    stop = Stop()
    stop.ladder.escalate()
    assert stop.steps == ["drain"]

    stop.on_drained()
    assert stop.steps == ["drain", "stop"]


def test_a_second_signal_kills_the_device_processes() -> None:
    stop = Stop()
    stop.ladder.escalate()
    stop.ladder.escalate()
    stop.ladder.escalate()
    assert stop.steps == ["drain", "kill"]

    stop.on_drained()
    assert stop.ladder.stage is StopStage.STOPPED


def test_a_closed_terminal_never_escalates() -> None:
    stop = Stop()
    stop.ladder.start()
    stop.ladder.start()

    assert stop.steps == ["drain"]


def test_chunks_that_never_end_are_killed_at_the_deadline() -> None:
    stop = Stop()
    stop.ladder.escalate()
    stop.timers[DRAIN_SECONDS]()
    assert stop.steps == ["drain", "kill"]

    stop.timers[stopping.KILL_SECONDS]()
    assert stop.steps == ["drain", "kill", "stop"]


def test_deadlines_of_stages_that_have_passed_do_nothing() -> None:
    stop = Stop()
    stop.ladder.escalate()
    stop.ladder.escalate()
    stop.on_drained()
    for timer in stop.timers.values():
        timer()

    assert stop.steps == ["drain", "kill", "stop"]


def test_a_step_that_hangs_ends_the_process_and_the_log_names_it() -> None:
    script = (
        "import logging, sys, threading; logging.basicConfig(stream=sys.stderr)\n"
        "from hetsched.daemon.stopping import ExitGuard\n"
        "guard = ExitGuard(lambda: print('devices killed', flush=True))\n"
        "guard.guarded('the planner', threading.Event().wait, 0.01)()\n"
    )
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, check=False, capture_output=True, text=True)

    assert (run.returncode, run.stdout) == (EXIT_STUCK, "devices killed\n")
    assert "the planner hasn't ended after 0.01 s; exiting without it" in run.stderr


def test_a_step_that_ends_stops_its_clock() -> None:
    exits: list[int] = []
    guard = ExitGuard(exit_now=exits.append)
    guard.guarded("a step", lambda: None, 60.0)()

    assert exits == []


def test_a_step_that_raises_stops_its_clock_too() -> None:
    with pytest.raises(ZeroDivisionError), ExitGuard().step("a step", 60.0):
        raise ZeroDivisionError
