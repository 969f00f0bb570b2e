"""A cancelled job goes on for no longer than what was sent ahead takes."""

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
from hetsched.device import Chunk
from hetsched.engine.job import job_run
from hetsched.engine.job.dispatch_driver import Computing, Sender
from hetsched.planner.job_planner import Assignment
from hetsched.transport.device_messages import ChunkDone

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


class Cancelling(Computing):
    """Has the job cancelled as soon as so many chunks have ended, and counts what is sent."""

    local: hetsched.Local
    at: int
    last: Cancelling

    def __init__(
        self, assigned: Mapping[str, Assignment], send: Sender, *rest: Any, **options: Any
    ) -> None:
        Cancelling.last = self
        self.ended = 0
        self.windows = sum(one.window for one in assigned.values())
        self.sent = 0
        self.cancelled = self.missed = False
        self._pass_on = send
        super().__init__(assigned, self._sent, *rest, **options)

    def _sent(self, device: str, chunks: tuple[Chunk, ...]) -> None:
        self.missed = self.missed or self.cancelled
        self.sent += len(chunks)
        self._pass_on(device, chunks)

    def chunk_done(self, device: str, done: ChunkDone) -> None:
        super().chunk_done(device, done)
        self.ended += 1
        if self.ended == self.at:
            self.cancelled = True
            engine = self.local._engine
            assert engine._active is not None
            engine.cancel(engine._active.number)


@pytest.mark.parametrize("at", [1, 5, 9])
def test_nothing_is_sent_after_a_cancel_and_at_most_a_window_ends(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setattr(job_run, "Computing", Cancelling)
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
