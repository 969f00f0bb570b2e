"""Every solver x precision x balancer x what happens to its devices, on virtual clocks.

Each job must give what one process computes without an engine. Real data have one machine.
Everything is forced: an iteration on a virtual clock begins when the engine allows it, and the
listener that kills, disables or enables a device runs on the engine's thread in between.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import hetsched
from benchmarks.results import Bar, Result
from hetsched.client.job import Job
from hetsched.config import parse
from hetsched.engine.run import runner
from hetsched.engine.run.saves import Saves
from hetsched.errors import HetschedError
from hetsched.job import BALANCE_METHODS, JobState, Running
from robustness.scale import Scale
from robustness.solver_cases import ALL_CASES, CASES, DTYPES, differences

END_SECONDS = 120.0
EVENTS = ("nothing", "loss", "join", "resume")
WARM_UPS = ("", "dfpa")
SHORT_STEP = 7
"""`make robust` takes every seventh combination; the dimensions have no such factor."""
EVENT_AT = 3
"""The iteration after which something happens; the shortest job has 20."""
MACHINES: Mapping[str, tuple[str, ...]] = {
    "two": ("slow", "fast"),
    "cliff": ("fast", "cliff", "slow"),
    "link": ("link", "cliff"),
}
REAL_MACHINE = "cliff"
DEVICES = """
[[device]]
kind = "emulated"
name = "slow"
clock = "virtual"
compute = { unit = "31us" }

[[device]]
kind = "emulated"
name = "fast"
clock = "virtual"
compute = { unit = "7us" }

[[device]]
kind = "emulated"
name = "cliff"
clock = "virtual"
compute = { points = [[1, "10us"], [20, "200us"], [30, "1500us"], [600, "30ms"]] }

[[device]]
kind = "emulated"
name = "link"
clock = "virtual"
memory = "64MiB"
compute = { gap = "20us", unit = "4us" }
h2d = { gap = "5us", rate = "1GB/s" }
d2h = { gap = "5us", rate = "1GB/s" }
"""


@dataclass(frozen=True)
class Combination:
    """One job. `machine`: the devices it may use."""

    solver: str
    dtype: str
    balance: str
    warm_up: str
    event: str
    machine: str

    def __str__(self) -> str:
        return " ".join(filter(None, astuple(self)))


DIMENSIONS: Sequence[Sequence[str]] = (
    tuple(ALL_CASES),
    DTYPES,
    BALANCE_METHODS,
    WARM_UPS,
    EVENTS,
    tuple(MACHINES),
)


def all_combinations() -> list[Combination]:
    """Return the full product; of real data with one machine."""
    product = [Combination(*values) for values in itertools.product(*DIMENSIONS)]
    return [each for each in product if each.solver in CASES or each.machine == REAL_MACHINE]


def pairwise_combinations() -> list[Combination]:
    """Return a few, without real data, in which every two values of different dimensions meet.

    Greedy: each is, of the full product, one with the most pairs that are still missing.
    """
    product = {each: _pairs(each) for each in all_combinations() if each.solver in CASES}
    missing = set().union(*product.values())
    chosen = []
    while missing:
        chosen.append(max(product, key=lambda each: len(product[each] & missing)))
        missing -= product[chosen[-1]]
    return chosen


def _pairs(combination: Combination) -> frozenset[tuple[tuple[int, str], ...]]:
    return frozenset(itertools.combinations(enumerate(astuple(combination)), 2))


@contextmanager
def machine() -> Iterator[hetsched.Local]:
    """An engine that reports each iteration, and writes one checkpoint of a job, at once."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, NUMBA_DISABLE_JIT="1"))
        stack.enter_context(mock.patch.object(runner, "PROGRESS_SECONDS", 0.0))
        stack.enter_context(mock.patch.object(Saves, "begin", _begin_at_once))
        yield stack.enter_context(hetsched.Local(parse(DEVICES, "matrix"), learn=False))


def _begin_at_once(saves: Saves, now: float) -> None:
    if not saves.is_writing:
        saves._due = now if saves._saved < 0 else math.inf


def failures(local: hetsched.Local, combination: Combination) -> list[str]:
    """Run the job; return what is wrong with it, [] if nothing."""
    names = MACHINES[combination.machine]
    run = {"nothing": _undisturbed, "loss": _loss, "join": _join, "resume": _resume}
    try:
        return run[combination.event](local, combination, names)
    except HetschedError as error:
        return [f"{type(error).__name__}: {error}"]


def _submit(
    local: hetsched.Local, combination: Combination, names: Sequence[str], **options: Any
) -> Job:
    """Submit the job once the devices are back that an earlier job has lost."""
    settled = local._engine._fleet.settled(names, with_restarts=True)
    asyncio.run_coroutine_threadsafe(settled, local._loop).result(END_SECONDS)
    case = ALL_CASES[combination.solver]
    return local.submit(
        case.workload.name,
        case.inputs(combination.dtype),
        devices=list(names),
        balance=combination.balance,
        warm_up=combination.warm_up or None,
        **options,
        **case.params(combination.dtype),
    )


def _differences(combination: Combination, job: Job) -> list[str]:
    return differences(combination.solver, combination.dtype, job.result(END_SECONDS))


def _undisturbed(
    local: hetsched.Local, combination: Combination, names: Sequence[str]
) -> list[str]:
    """Without a balancer the split is the same, so a second job gives the same bits."""
    job = _submit(local, combination, names)
    wrong = _differences(combination, job)
    if combination.balance == "none" and not combination.warm_up:
        again = _submit(local, combination, names).result(END_SECONDS)
        first = job.result()
        wrong += [
            f"{name} has other bits the second time"
            for name in first
            if not np.array_equal(first[name], again[name])
        ]
    return wrong


def _loss(local: hetsched.Local, combination: Combination, names: Sequence[str]) -> list[str]:
    victim = names[len(combination.solver) % len(names)]
    killed: list[int] = []

    def follow(state: JobState) -> None:
        if isinstance(state, Running) and (state.iteration or 0) >= EVENT_AT and not killed:
            killed.append(local.pids()[victim])
            os.kill(killed[0], signal.SIGKILL)

    job = _submit(local, combination, names, follow=follow)
    wrong = _differences(combination, job)
    notes = job.report.notes if job.report else ()
    if not any(f"the process of {victim} died" in note for note in notes):
        wrong.append(f"no note on the death of {victim}: {notes}")
    return wrong


def _join(local: hetsched.Local, combination: Combination, names: Sequence[str]) -> list[str]:
    """Disable a device, and enable it once the others go on without it."""
    guest = names[len(combination.solver) % len(names)]
    seen: list[bool] = []
    """Whether it took part, with each change."""

    def follow(state: JobState) -> None:
        if not isinstance(state, Running) or (state.iteration or 0) < EVENT_AT:
            return
        takes_part = guest in [device.device for device in state.devices]
        if not seen:
            local.switch_devices(disable=[guest])
        elif seen[-1] and not takes_part:
            local.switch_devices(enable=[guest])
        if not seen or seen[-1] != takes_part:
            seen.append(takes_part)

    try:
        wrong = _differences(combination, _submit(local, combination, names, follow=follow))
    finally:
        local.switch_devices(enable=[guest])
    return wrong if seen[:3] == [True, False, True] else [*wrong, f"{guest} took part: {seen}"]


def _resume(local: hetsched.Local, combination: Combination, names: Sequence[str]) -> list[str]:
    """Continue on other devices than those that wrote the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.ckpt"
        first = _submit(local, combination, names[:-1], checkpoint=path)
        wrong = _differences(combination, first)
        deadline = time.monotonic() + END_SECONDS
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.001)  # it is written while the job goes on
        second = _submit(local, combination, names, resume=path)
        wrong += _differences(combination, second)
        report = second.report
        if report is None or not report.continued_after:
            wrong.append("it didn't continue from the checkpoint")
        return wrong


def measure(scale: Scale) -> Result:
    product = all_combinations()
    chosen = {
        "test": pairwise_combinations(),
        "short": product[scale.seed % SHORT_STEP :: SHORT_STEP],
        "long": product,
    }[scale.name]
    result = Result(
        "solver_matrix",
        "Solvers, precisions, balancers and what happens to their devices",
        ("event", "jobs", "wrong"),
    )
    wrong: dict[Combination, list[str]] = {}
    with machine() as local:
        for combination in _interleaved(chosen):
            if texts := failures(local, combination):
                wrong[combination] = texts
    for event in EVENTS:
        jobs = sum(combination.event == event for combination in chosen)
        failed = sum(combination.event == event for combination in wrong)
        result.rows.append((event, str(jobs), str(failed)))
    result.rows += [(str(combination), "", "; ".join(wrong[combination])) for combination in wrong]
    result.data.append({str(combination): texts for combination, texts in wrong.items()})
    result.bars += [
        Bar("combinations", len(chosen), len(chosen)),
        Bar("jobs with wrong results", len(wrong), 0, at_least=False),
    ]
    return result


def _interleaved(combinations: Sequence[Combination]) -> list[Combination]:
    """Return them such that a device that died works again before it dies again.

    Three deaths without successes in between would bar it.
    """
    losses = [each for each in combinations if each.event == "loss"]
    others = [each for each in combinations if each.event != "loss"]
    step = max(1, len(others) // max(1, len(losses)))
    ordered: list[Combination] = []
    for index, loss in enumerate(losses):
        ordered += [*others[index * step : (index + 1) * step], loss]
    return ordered + others[len(losses) * step :]
