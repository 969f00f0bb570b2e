"""A device process killed during a plan, in any phase of a chunk, costs at most a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cores import COUNT
from deadly import PHASES, WIDTH

import hetsched
from hetsched.config import parse
from hetsched.device import Chunk
from hetsched.dispatch.commands import Command, Send
from hetsched.dispatch.events import ChunkFinished, DeviceLost, Event
from hetsched.engine.run import compute
from hetsched.engine.run.computation import Computation
from hetsched.planner.job_planner import Assignment

HERE = Path(__file__).parent
UNITS = 48

LINKED = """
[[device]]
kind = "emulated"
name = "core0"
clock = "CLOCK"
compute = { unit = "200us" }

[[device]]
kind = "emulated"
name = "emu0"
clock = "CLOCK"
memory = "1MiB"
compute = { gap = "20us", unit = "50us" }
h2d = { gap = "20us", unit = "50us" }
d2h = { gap = "20us", unit = "50us" }
"""
MACHINES = {
    "virtual": (LINKED.replace("CLOCK", "virtual"), "emu0"),
    "real": (LINKED.replace("CLOCK", "real"), "emu0"),
    "cores": (f'[[device]]\nkind = "cpu"\ncount = {COUNT}\nhardware_threads = true\n', "cpu0"),
}
CASES = [("preparing", 1)] + [(phase, n) for phase in PHASES[1:] for n in (1, 3)]


class Watched(Computation):
    """Notes what is sent, what has ended, and what was in flight when a device was lost."""

    last: Watched

    def __init__(self, assignments: Mapping[str, Assignment], *rest: Any, **options: Any) -> None:
        Watched.last = self
        self.windows = {device: a.window for device, a in assignments.items()}
        self.ended: list[Chunk] = []
        self.torn: dict[str, list[Chunk]] = {}
        self._in_flight: dict[str, dict[int, Chunk]] = {device: {} for device in assignments}
        super().__init__(assignments, *rest, **options)

    def handle(self, event: Event, now: float) -> list[Command]:
        if isinstance(event, ChunkFinished):
            self.ended.append(self._in_flight[event.device].pop(event.chunk))
        if isinstance(event, DeviceLost):
            self.torn[event.device] = list(self._in_flight[event.device].values())
            self._in_flight[event.device].clear()
        commands = super().handle(event, now)
        for command in commands:
            if isinstance(command, Send):
                assert not counted(command.chunks) & counted(self.ended), "finished units rerun"
                self._in_flight[command.device].update((c.id, c) for c in command.chunks)
        return commands


@pytest.fixture(scope="module", params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Iterator[tuple[hetsched.Local, str]]:
    text, victim = MACHINES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        patch.setattr(compute, "Computation", Watched)
        with hetsched.Local(parse(text, "test"), learn=False) as local:
            yield local, victim


@pytest.mark.parametrize(("phase", "number"), CASES)
def test_the_result_is_right_and_at_most_a_window_runs_twice(
    machine: tuple[hetsched.Local, str], phase: str, number: int, tmp_path: Path
) -> None:
    local, victim = machine
    x = local.empty((UNITS, WIDTH), "float32")  # not as the kernel wants it: so cores copy, too
    x[...] = np.arange(UNITS)[:, None]
    local.submit("deadly:Deadly", x, devices=victim).result(timeout=60)  # it has come back

    y = local.submit("deadly:Deadly", x, phase=phase, number=number, folder=str(tmp_path)).result(
        timeout=60
    )

    assert (tmp_path / "killed").exists()
    assert (y == 2 * x + 1).all()
    watched = Watched.last
    torn = [chunk for chunks in watched.torn.values() for chunk in chunks]
    assert counted(watched.ended) == Counter(range(UNITS))
    assert all(len(chunks) <= watched.windows[d] for d, chunks in watched.torn.items())
    assert max(counted(logged(tmp_path / "reported")).values()) == 1
    assert repeated(tmp_path / "computed") <= set(counted(torn))


def repeated(path: Path) -> set[int]:
    """Units in more than one chunk: two at most."""
    times = counted(logged(path))
    assert max(times.values()) <= 2
    return {unit for unit, often in times.items() if often > 1}


def logged(path: Path) -> list[Chunk]:
    lines = path.read_text().splitlines()
    return [Chunk(0, *map(int, line.split())) for line in lines]


def counted(chunks: Iterable[Chunk]) -> Counter[int]:
    """Unit -> in how many of `chunks` it is."""
    return Counter(unit for c in chunks for unit in range(c.first, c.first + c.count))
