"""A cancelled job continues only until the chunks sent ahead are done."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deadly import WIDTH

import hetsched
from hetsched.config import parse
from hetsched.dispatch.commands import Command, Send
from hetsched.dispatch.events import ChunkFinished, Event
from hetsched.engine.run import compute
from hetsched.engine.run.computation import Computation
from hetsched.planner.job_planner import Assignment

HERE = Path(__file__).parent
UNITS = 400
MACHINE = """
[[device]]
kind = "emulated"
name = "core0"
compute = { unit = "50us" }

[[device]]
kind = "emulated"
name = "emu0"
memory = "4KiB"
compute = { gap = "20us", unit = "20us" }
h2d = { gap = "20us", unit = "20us" }
d2h = { gap = "20us", unit = "20us" }
"""


class Cancelling(Computation):
    """Has the job cancelled as soon as so many chunks have ended, and counts what is sent."""

    local: hetsched.Local
    at: int
    last: Cancelling

    def __init__(self, assignments: Mapping[str, Assignment], *rest: Any, **options: Any) -> None:
        Cancelling.last = self
        self.ended = 0
        self.windows = sum(assignment.window for assignment in assignments.values())
        self.sent = 0
        self.cancelled = self.missed = False
        super().__init__(assignments, *rest, **options)

    def handle(self, event: Event, now: float) -> list[Command]:
        commands = super().handle(event, now)
        for command in commands:
            if isinstance(command, Send):
                self.missed = self.missed or self.cancelled
                self.sent += len(command.chunks)
        if isinstance(event, ChunkFinished):
            self.ended += 1
        if self.ended == self.at and not self.cancelled:
            self.cancelled = True
            engine = self.local._engine
            main = engine._scheduler.running.main
            assert main is not None
            engine.cancel(main.number)
        return commands


@pytest.mark.parametrize("at", [1, 5, 9])
def test_nothing_is_sent_after_a_cancel_and_at_most_a_window_ends(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setattr(compute, "Computation", Cancelling)
    monkeypatch.setattr(Cancelling, "at", at, raising=False)
    with hetsched.Local(parse(MACHINE, "test"), learn=False) as local:
        monkeypatch.setattr(Cancelling, "local", local, raising=False)
        x = local.empty((UNITS, WIDTH), "float64")
        x[...] = np.arange(UNITS)[:, None]
        job = local.submit("deadly:Deadly", x, units=UNITS, folder=str(tmp_path))
        with pytest.raises(CancelledError):
            job.result(timeout=60)

    last = Cancelling.last
    begun = len((tmp_path / "computed").read_text().splitlines())
    assert not last.missed
    assert last.sent - at <= last.windows
    assert begun <= last.sent
