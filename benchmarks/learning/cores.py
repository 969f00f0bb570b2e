"""Cores: expensive calls, steps and changes of speed, slow spells, noise, and tails."""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

import msgspec

from benchmarks.learning import Verdict
from hetsched.device import TAIL_CHUNK_ID, Chunk, ChunkTimes, DeviceInfo, TailCounter
from hetsched.dispatch import Dispatcher
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.planner.assignment import MAX_COSTLY_CHUNK_SECONDS
from hetsched.planner.records import JobPlan
from hetsched.simulate.machine import (
    ChunkTimings,
    LearningRun,
    SimulatedDevice,
    SimulatedMachine,
    ideal_plan,
    learn,
    makespan,
)

NOISE = 0.02
TAKE_SECONDS = 50e-6
"""To take units of a tail. Estimate."""
Random = random.Random | None


def core(number: int, unit: float, identity: str = "core", tail: str = "") -> SimulatedDevice:
    """Return a core that takes `unit` seconds for each unit."""
    curve = Affine(0.0, unit)
    info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity=identity, tail_group=tail)
    demand = MemoryDemand(input_bytes=1 << 15, work_bytes=0, output_bytes=1 << 15)
    return SimulatedDevice(info, DeviceModel(curve, curve), demand)


@dataclass(frozen=True)
class ScaledCores(SimulatedMachine):
    """Cores whose time of a run is `factor` (device, share, rng) times that by their pace."""

    factor: Callable[[str, int, Random], float] = field(kw_only=True)

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: Random = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan`, without noise if there is no `rng`."""
        timings: dict[str, ChunkTimings] = {}
        for device, chunks in super().play(plan).items():
            factor = self.factor(device, sum(units for units, _ in chunks), rng)
            timings[device] = tuple(
                (units, msgspec.structs.replace(
                    times, compute=(factor * times.start, factor * times.end)))
                for units, times in chunks
            )  # fmt: skip
        return timings


ChunkSeconds = Callable[[Chunk, float], float]
"""Seconds of a chunk that starts at a time."""


@dataclass(frozen=True)
class DispatchedCores(SimulatedMachine):
    """Cores of one process: units move between them as the product's dispatcher decides.

    `draw` returns the seconds of each device's chunks in a run, in the mean without `rng`.
    """

    draw: Callable[[Random], Mapping[str, ChunkSeconds]] = field(kw_only=True)

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: Random = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan` in virtual time."""
        return DispatchedRun(plan, self.draw(rng)).run()


class DispatchedRun:
    """A plan for cores, run by the product's dispatcher and rule of taking from tails."""

    def __init__(self, plan: JobPlan, seconds: Mapping[str, ChunkSeconds]) -> None:
        assignments, self._seconds = plan.assignments, seconds
        self._tails = {a.device: a.tail for a in assignments if a.tail is not None}
        self._counters = {
            tail.first: TailCounter(tail.first, tail.units) for tail in self._tails.values()
        }
        self._dispatcher = Dispatcher(
            {a.device: a.chunks for a in assignments},
            {a.device: a.window for a in assignments},
            {a.device: a.max_chunk for a in assignments},
            {a.device: a.pace for a in assignments},
            self._tails,
        )
        self._waiting: dict[str, deque[Chunk]] = {a.device: deque() for a in assignments}
        self._idle, self._open = set(self._waiting), set[str]()
        self._ends: list[tuple[float, str, Chunk]] = []
        self._timings: dict[str, list[tuple[int, ChunkTimes]]] = defaultdict(list)

    def run(self) -> dict[str, ChunkTimings]:
        """Return the timings of each device that computed, in the order of its chunks."""
        self._go_on(0.0)
        while self._ends:
            now, name, chunk = heapq.heappop(self._ends)
            self._idle.add(name)
            if chunk.id == TAIL_CHUNK_ID:
                self._dispatcher.finish_tail_chunk(name, chunk.first, chunk.count, now)
            else:
                self._dispatcher.finish_chunk(name, chunk.id, now)
            self._go_on(now)
        return {name: tuple(chunks) for name, chunks in self._timings.items()}

    def _go_on(self, now: float) -> None:
        for command in self._dispatcher.commands(now):
            self._waiting[command.device].extend(command.chunks)
            if command.opens_tail:
                self._open.add(command.device)
        for name in sorted(self._idle):
            if (chunk := self._next_chunk(name)) is not None:
                self._idle.remove(name)
                is_taken = chunk.id == TAIL_CHUNK_ID
                start = now + TAKE_SECONDS * is_taken
                end = start + self._seconds[name](chunk, start)
                times = ChunkTimes(compute=(start, end), taken=is_taken)
                self._timings[name].append((chunk.count, times))
                heapq.heappush(self._ends, (end, name, chunk))
            elif name in self._open:
                self._open.remove(name)
                self._dispatcher.leave_tail(name)

    def _next_chunk(self, name: str) -> Chunk | None:
        """Return one that was sent, or one of the tail; None: there is none."""
        if self._waiting[name]:
            return self._waiting[name].popleft()
        if name not in self._open:
            return None
        tail = self._tails[name]
        taken = self._counters[tail.first].take(tail)
        return None if taken is None else Chunk(TAIL_CHUNK_ID, *taken)


def calls(seeds: int) -> Iterator[Verdict]:
    """A chunk costs a call and its units, as a matrix product packs its right side in each.

    Runs count from the sixth on, by their time over that of the fewest equal chunks of the longest
    kind.
    """
    for units, call, unit in (
        (8192, 55e-3, 1.3e-3), (1536, 55e-3, 1.3e-3), (4096, 20e-3, 0.2e-3),
        (4096, 5e-3, 0.1e-3), (4096, 0.0, 0.5e-3),
    ):  # fmt: skip
        share = units // 2
        chunks = max(1, round(share * unit / (MAX_COSTLY_CHUNK_SECONDS - call)))
        best = chunks * call + share * unit

        def draw(rng: Random, call: float = call, unit: float = unit) -> dict[str, ChunkSeconds]:
            def seconds(chunk: Chunk, start: float) -> float:
                error = rng.gauss(0.0, NOISE) if rng is not None else 0.0
                return (call + unit * chunk.count) * math.exp(error)

            return {"cpu0": seconds, "cpu1": seconds}

        devices = tuple(core(number, unit, tail="cpu") for number in range(2))
        machine = DispatchedCores(units, devices, draw=draw)
        runs = [run for seed in range(seeds) for run in learn(machine, 12, NOISE, seed)[5:]]
        case = f"a call costs as much as {call / unit:.0f} units, {best:.1f} s"
        yield Verdict(case, [run.noiseless / best for run in runs], max_worst=1.03)


def changes(seeds: int) -> Iterator[Verdict]:
    """A step is not a change, and a change is one: relative errors of predictions.

    Shares past a cache of 24 units take 1.35 times as long per unit: after ten runs at 20 units
    per core come some at 29, 30 and 28, then 20 again. Or a core becomes half as fast.
    """

    def machine(units_per_core: int, slowness: float, has_cache: bool) -> SimulatedMachine:
        def factor(device: str, share: int, rng: Random) -> float:
            noise = rng.gauss(0.0, NOISE) if rng is not None else 0.0
            step = 1.35 if has_cache and share > 24 else 1.0
            return step * math.exp(noise) * (slowness if device == "cpu1" else 1.0)

        devices = tuple(core(number, 10e-3) for number in range(2))
        return ScaledCores(2 * units_per_core, devices, factor=factor)

    sizes = [20] * 10 + [29, 30, 28] + [20] * 3
    steps, halved = [], []
    for seed in range(seeds):
        usual = machine(20, 1.0, True)
        steps += learn(
            usual, len(sizes), NOISE, seed, machine_in=lambda run: machine(sizes[run], 1.0, True)
        )[-3:]
        halved += learn(
            machine(20, 1.0, False), 14, NOISE, seed,
            machine_in=lambda run: machine(20, 1.0 if run < 10 else 2.0, False),
        )[-1:]  # fmt: skip
    yield Verdict("20 units per core after larger ones past a cache", _errors(steps), None, 0.05)
    yield Verdict("after 3 runs with a core half as fast", _errors(halved), None, 0.10)


def _errors(runs: list[LearningRun]) -> list[float]:
    predictions = (run.plan.predicted_seconds or math.inf for run in runs)
    return [abs(p / run.noiseless - 1) for p, run in zip(predictions, runs, strict=True)]


@dataclass(frozen=True)
class Spell:
    """The last of `cores` takes `slowdown` times as long in the runs `slow`, from 0.

    `is_random_end`: they last up to 9 runs longer, by the seed. `are_equal`: cores learn together.
    """

    name: str
    cores: int
    load: int
    slowdown: float
    slow: range
    runs: int
    is_random_end: bool = False
    are_equal: bool = True

    def machine_in(self, run: int) -> SimulatedMachine:
        paces = [10e-3] * (self.cores - 1) + [10e-3 * (self.slowdown if run in self.slow else 1)]
        same = self.are_equal
        cores = (core(i, pace, "core" if same else f"core {i}") for i, pace in enumerate(paces))
        return SimulatedMachine(self.load, tuple(cores))

    def learnt(self, seed: int) -> list[LearningRun]:
        return learn(self.machine_in(0), self.runs, NOISE, seed, machine_in=self.machine_in)

    def runs_to_recover(self, runs: list[LearningRun]) -> int:
        """Return the runs after the slow ones until shares are equal for good."""
        equal = {self.load // self.cores, -(-self.load // self.cores)}
        for number in range(self.runs, self.slow.stop, -1):
            shares = runs[number - 1].plan.shares
            if len(shares) < self.cores or not set(shares.values()) <= equal:
                return number - self.slow.stop
        return 0


SPELLS = (
    Spell("2 cores, 2 units, slow in run 0", 2, 2, 3.0, range(1), 40),
    Spell("8 cores, 32 units, slow in runs 10 to 19", 8, 32, 6.0, range(10, 20), 200),
    Spell("2 cores, 64 units, slow in runs 0 and 1", 2, 64, 3.0, range(2), 40),
    Spell("8 cores, 32 units, slow in runs 3 to 60", 8, 32, 6.0, range(3, 61), 100),
    Spell("16 cores, 64 units, slow in runs 10 to 12", 16, 64, 6.0, range(10, 13), 60),
    Spell("8 cores, 32 units, slow until 19 to 28", 8, 32, 6.0, range(10, 20), 60, True),
    Spell("8 unlike cores, 32 units, until 19 to 28", 8, 32, 6.0, range(10, 20), 60, True, False),
)
ALWAYS_SLOW = Spell("8 cores, 32 units, always slow", 8, 32, 6.0, range(10**6), 200)


def exclusion(seeds: int) -> Iterator[Verdict]:
    """Cores that were slow for a while: runs until shares are equal again, and what probes cost.

    The cost is the mean time over that of the best plan, beside a core that stays slow.
    """
    for spell in SPELLS:
        recovery = []
        for seed in range(seeds):
            end = spell.slow.stop + (seed % 10 if spell.is_random_end else 0)
            case = replace(spell, slow=range(spell.slow.start, end))
            recovery.append(case.runs_to_recover(case.learnt(seed)))
        yield Verdict(f"{spell.name}: runs to equal shares", recovery, max_worst=12)
    machine = ALWAYS_SLOW.machine_in(0)
    best = makespan(machine.play(ideal_plan(machine)))
    ratios = [
        fmean(run.noiseless / best for run in ALWAYS_SLOW.learnt(seed)[3:])
        for seed in range(seeds)
    ]
    yield Verdict(ALWAYS_SLOW.name, ratios, max_worst=1.05)


def noisy(seeds: int) -> Iterator[Verdict]:
    """200 runs of four noisy cores: mean time of the plans without noise over the best plan's."""
    for are_equal in (False, True):
        ratios = []
        for seed in range(seeds):
            machine = noisy_machine(seed, are_equal)
            best = makespan(machine.play(ideal_plan(machine)))
            runs = learn(machine, 200, 0.0, seed)[5:]
            ratios.append(fmean(run.noiseless / best for run in runs))
        yield Verdict(f"{'equal' if are_equal else 'unlike'} cores", ratios, max_mean=1.02)


def noisy_machine(seed: int, are_equal: bool) -> SimulatedMachine:
    """Each run of a core is off by 5 %, and one in a hundred takes 20 times as long.

    Unlike cores learn alone, equal ones together.
    """

    def factor(device: str, share: int, rng: Random) -> float:
        if rng is None:
            return 1.0
        return math.exp(rng.gauss(0.0, 0.05)) * (20.0 if rng.random() < 0.01 else 1.0)

    rng = random.Random(seed)
    paces = [rng.uniform(1e-3, 4e-3) for _ in range(4)]
    devices = (
        core(i, paces[0] if are_equal else pace, "core" if are_equal else f"core {i}")
        for i, pace in enumerate(paces)
    )
    return ScaledCores(1000, tuple(devices), factor=factor)


def tail(seeds: int) -> Iterator[Verdict]:
    """256 units that take 100 ms on cores whose speed varies by 10 % from run to run.

    By the time over the load over the sum of the speeds in that run, from the 16th run on, when
    the variation is known. Irregular units cost 1 to 20 times the least, drawn for each run.
    """
    for count, limit in {2: 1.01, 8: 1.03, 16: 1.05}.items():
        for variation, bar in ((0.1, limit), (0.0, 1.01)):
            ratios = [r for seed in range(seeds) for r in tail_ratios(count, variation, seed)]
            yield Verdict(f"{count} cores that vary by {variation:.0%}", ratios, max_mean=bar)
    ratios = [r for seed in range(seeds) for r in tail_ratios(8, 0.0, seed, cost_ratio=20.0)]
    yield Verdict("8 cores, irregular units", ratios, max_mean=1.06)


def tail_ratios(
    count: int, variation: float, seed: int, runs: int = 40, *, cost_ratio: float = 1.0
) -> list[float]:
    """Return the time of each run from the 16th on over its ideal."""
    units, unit, ideals = 256, 0.1 * count / 256, []
    mean_cost = (cost_ratio - 1) / math.log(cost_ratio) if cost_ratio > 1 else 1.0

    def draw(rng: Random) -> dict[str, ChunkSeconds]:
        names = [f"cpu{number}" for number in range(count)]
        if rng is None:
            return dict.fromkeys(names, lambda chunk, start: unit * chunk.count)
        paces = [unit * math.exp(rng.gauss(0.0, variation)) for _ in names]
        costs = [cost_ratio ** rng.random() / mean_cost for _ in range(units)]
        ideals.append(sum(costs) / sum(1 / pace for pace in paces))

        def at(pace: float) -> ChunkSeconds:
            return lambda chunk, start: pace * sum(costs[chunk.first : chunk.first + chunk.count])

        return {name: at(pace) for name, pace in zip(names, paces, strict=True)}

    devices = tuple(core(number, unit, tail="cpu0") for number in range(count))
    learning = learn(DispatchedCores(units, devices, draw=draw), runs, 0.0, seed)
    return [run.measured / ideal for run, ideal in zip(learning, ideals, strict=True)][15:]
