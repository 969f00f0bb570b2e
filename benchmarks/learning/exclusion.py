"""Cores that were slow for a while, or once.

Equal cores of which one takes several times as long in some runs. Afterwards the shares must be
equal again. The cost of probing counts as the time of plans without noise over that of the best
plan for the machine as it is in each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from benchmarks.results import Bar, Result
from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.simulate.learning import LearningRun, ideal_plan, learn
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine, makespan

NOISE = 0.02
UNIT = 10e-3
"""Seconds of a unit on a core at its normal speed."""
MAX_RUNS_TO_RECOVER = 12
MAX_MEAN_RATIO = 1.05
"""Mean time over that of the best plan, beside a core that stays slow: what probes may cost."""


@dataclass(frozen=True)
class Case:
    """The last of `cores` takes `slowdown` times as long in the runs `slow`, from 0.

    `is_random_end`: they last up to 9 runs longer, by the seed. `are_equal`: the cores have the
    same processor, and learn together.
    """

    name: str
    cores: int
    load: int
    slowdown: float
    slow: range
    runs: int
    is_random_end: bool = False
    are_equal: bool = True

    def of_seed(self, seed: int) -> Case:
        """Return the case for a seed."""
        if not self.is_random_end:
            return self
        return replace(self, slow=range(self.slow.start, self.slow.stop + seed % 10))

    def machine_in(self, run: int) -> SimulatedMachine:
        """Return the machine in a run."""
        paces = [1.0] * self.cores
        paces[-1] = self.slowdown if run in self.slow else 1.0
        cores = tuple(
            _core(number, UNIT * pace, "core" if self.are_equal else f"core {number}")
            for number, pace in enumerate(paces)
        )
        return SimulatedMachine(self.load, cores)

    def equal_shares(self) -> set[int]:
        """Return the sizes of equal shares: one size, or two that differ by a unit."""
        return {self.load // self.cores, -(-self.load // self.cores)}


CASES = (
    Case("2 cores, 2 units, slow in run 0", 2, 2, 3.0, range(1), 40),
    Case("8 cores, 32 units, slow in runs 10 to 19", 8, 32, 6.0, range(10, 20), 200),
    Case("2 cores, 64 units, slow in runs 0 and 1", 2, 64, 3.0, range(2), 40),
    Case("8 cores, 32 units, slow in runs 3 to 60", 8, 32, 6.0, range(3, 61), 100),
    Case("16 cores, 64 units, slow in runs 10 to 12", 16, 64, 6.0, range(10, 13), 60),
    Case("8 cores, 32 units, slow until 19 to 28", 8, 32, 6.0, range(10, 20), 60, True),
    Case("8 unlike cores, 32 units, until 19 to 28", 8, 32, 6.0, range(10, 20), 60, True, False),
)
ALWAYS_SLOW = Case("8 cores, 32 units, always slow", 8, 32, 6.0, range(1_000_000), 200)


def _core(number: int, seconds: float, identity: str) -> SimulatedDevice:
    curve = Affine(0.0, seconds)
    info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity=identity, clock="virtual")
    demand = MemoryDemand(input_bytes=1 << 20, work_bytes=0, output_bytes=1 << 20, limit=None)
    return SimulatedDevice(info, DeviceModel(curve, curve), demand)


def learnt(case: Case, seed: int) -> list[LearningRun]:
    """Return the runs of a case, `case.of_seed(seed)`."""
    case = case.of_seed(seed)
    machine = case.machine_in(0)
    return learn(machine, case.runs, NOISE, seed, machine_in=case.machine_in)


def runs_to_recover(case: Case, runs: Sequence[LearningRun]) -> int:
    """Return the runs after the slow ones until shares are equal for good, but for probes."""
    first = case.slow.stop
    unequal = [number for number in range(first, case.runs) if not _is_equal(case, runs[number])]
    return max(unequal) + 1 - first if unequal else 0


def _is_equal(case: Case, run: LearningRun) -> bool:
    shares = run.plan.shares
    return len(shares) == case.cores and set(shares.values()) <= case.equal_shares()


def mean_ratio(case: Case, runs: Sequence[LearningRun], first: int = 0) -> float:
    """Return the mean time of the runs from `first` on over that of the best plan in each."""
    best: dict[bool, float] = {}
    ratios = []
    for number in range(first, len(runs)):
        machine = case.machine_in(number)
        is_slow = number in case.slow
        if is_slow not in best:
            best[is_slow] = makespan(machine.play(ideal_plan(machine)))
        ratios.append(runs[number].noiseless / best[is_slow])
    return fmean(ratios)


def measure(seeds: int) -> Result:
    columns = ("case", "runs to recover, worst", "mean", "time over the best plan, mean", "bar")
    result = Result("learning_exclusion", "Learning: devices that were slow once", columns)
    for case in CASES:
        trials = [(case.of_seed(seed), learnt(case, seed)) for seed in range(seeds)]
        recovery = [runs_to_recover(*trial) for trial in trials]
        ratio = fmean(mean_ratio(*trial) for trial in trials)
        figures = str(max(recovery)), f"{fmean(recovery):.1f}", f"{ratio:.3f}"
        result.rows.append((case.name, *figures, f"{MAX_RUNS_TO_RECOVER} runs"))
        result.data.append({"case": case.name, "runs_to_recover": recovery, "mean_ratio": ratio})
        title = f"{case.name}: runs to equal shares, worst of {seeds} seeds"
        result.bars.append(Bar(title, max(recovery), MAX_RUNS_TO_RECOVER, at_least=False))
    ratios = [mean_ratio(ALWAYS_SLOW, learnt(ALWAYS_SLOW, seed), first=3) for seed in range(seeds)]
    row = ALWAYS_SLOW.name, "-", "-", f"{fmean(ratios):.3f}", f"{MAX_MEAN_RATIO:g}"
    result.rows.append(row)
    result.data.append({"case": ALWAYS_SLOW.name, "mean_ratios": ratios})
    title = f"{ALWAYS_SLOW.name}: mean time over the best plan, worst of {seeds} seeds"
    result.bars.append(Bar(title, max(ratios), MAX_MEAN_RATIO, at_least=False))
    return result
