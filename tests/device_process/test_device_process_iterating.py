"""Devices iterate in step; what they compute is what one process computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import diffusing_workload
import numpy as np
import pytest
from diffusing_workload import Diffusion, DiffusionParams
from iterating_bench import JOB, THREE_CORES, Gate, IteratingBench, Opener

from hetsched.iterations.serial import SerialResult, run
from hetsched.transport.device_messages import (
    Release,
    Released,
)

X = np.random.default_rng(5).standard_normal((24, 4))

MakeBench = Callable[..., IteratingBench]


@pytest.fixture
def make_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[MakeBench]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with contextlib.ExitStack() as stack:

        def make(devices: Sequence[Opener] = THREE_CORES, **settings: Any) -> IteratingBench:
            bench = IteratingBench(DiffusionParams(**settings), X, devices)
            return stack.enter_context(contextlib.closing(bench))

        yield make


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(diffusing_workload, "make", gate.make)
    yield gate
    gate.open()


def expected(bench: IteratingBench, split: Any) -> SerialResult:
    return run(Diffusion(), bench.params, {"x": X}, split)


@pytest.mark.parametrize("border", ["periodic", "reflect", "fixed"])
@pytest.mark.parametrize("shares", [(24, 0, 0), (11, 7, 6), (1, 22, 1), (12, 0, 12)])
def test_devices_compute_the_same_bits_as_one_process(
    make_bench: MakeBench, border: str, shares: tuple[int, ...]
) -> None:
    bench = make_bench(border=border)
    bench.prepare()

    bench.iterate(dict(enumerate(shares)))
    stopped = bench.stopped(3)

    result = expected(bench, shares)
    np.testing.assert_array_equal(bench.arrays["y"], result.outputs["y"])
    assert {(stop.iteration, stop.reason) for stop in stopped} == {(10, "limit")}
    for slot in range(3):
        assert tuple(bench.residuals(slot)) == result.residuals
        assert bench.rows(slot) == dict.fromkeys(range(1, 11), shares[slot])


def test_a_proposed_split_is_adopted_by_all_after_the_same_iteration(
    make_bench: MakeBench, gate: Gate
) -> None:
    bench = make_bench(iterations=10)
    bench.prepare()
    bench.iterate({0: 8, 1: 8, 2: 8})
    gate.wait()
    bench.control.propose((0, 20, 20, 24))
    gate.open()

    bench.stopped(3)

    result = expected(bench, lambda k: (8, 8, 8) if k <= gate.ITERATION else (20, 0, 4))
    np.testing.assert_array_equal(bench.arrays["y"], result.outputs["y"])
    rows = [list(bench.rows(slot).values()) for slot in range(3)]
    assert rows == [[8] * 5 + [20] * 5, [8] * 5 + [0] * 5, [8] * 5 + [4] * 5]


def test_iterations_continue_after_a_pause_with_other_devices(
    make_bench: MakeBench, gate: Gate
) -> None:
    bench = make_bench(iterations=20)
    bench.prepare()
    bench.iterate({0: 8, 1: 0, 2: 16})
    gate.wait()
    bench.control.pause()
    gate.open()
    (iteration,) = {stop.iteration for stop in bench.stopped(3)}

    bench.iterate({1: 20, 0: 4}, first=iteration + 1, previous=(0, 2), epoch=2)
    stopped = bench.stopped(2)

    def split(k: int) -> tuple[int, ...]:
        return (8, 16) if k <= iteration else (20, 4)

    result = expected(bench, split)
    np.testing.assert_array_equal(bench.arrays["y"], result.outputs["y"])
    assert tuple(bench.residuals(0)) == result.residuals
    assert iteration == gate.ITERATION
    assert {(stop.epoch, stop.iteration, stop.reason) for stop in stopped} == {(2, 20, "limit")}


def test_values_of_a_checkpoint_are_taken_from_the_combined_slot(
    make_bench: MakeBench, gate: Gate
) -> None:
    bench = make_bench()
    bench.prepare()
    bench.iterate({0: 8, 1: 8, 2: 8})
    gate.wait()
    bench.control.pause()
    gate.open()
    (iteration,) = {stop.iteration for stop in bench.stopped(3)}
    for name in ("total", "change"):
        partials = bench.arrays[f"partials/{name}"]
        combine = np.max if name == "change" else np.sum
        partials[iteration % 2, 3] = combine(partials[iteration % 2, :3], axis=0)
        partials[:, :3] = 99

    bench.iterate({0: 24}, first=iteration + 1)
    bench.stopped(1)

    result = expected(bench, lambda k: (8, 8, 8) if k <= iteration else (24,))
    np.testing.assert_array_equal(bench.arrays["y"], result.outputs["y"])


def test_a_fence_ends_iterations_though_another_device_never_comes(
    make_bench: MakeBench,
) -> None:
    bench = make_bench()
    bench.prepare()
    bench.iterate({0: 8, 1: 8, 2: 8}, missing=[2])

    bench.order(0, Release(JOB, answer=True))
    bench.order(1, Release(JOB, answer=True))

    assert [released.attempt for released in bench.answers(Released, 2)] == [JOB, JOB]


def test_paced_devices_adopt_a_proposal_for_the_iteration_that_they_are_allowed(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(iterations=4)
    bench.prepare()
    bench.iterate({0: 8, 1: 8, 2: 8}, paced=True)
    bench.control.allow(2)
    for slot in range(3):
        bench.wait_for_report(slot, 2)

    bench.control.propose((0, 4, 4, 24))
    bench.control.allow(4)
    bench.stopped(3)

    assert [list(bench.rows(slot).values()) for slot in range(3)] == [
        [8, 8, 4, 4],
        [8, 8, 0, 0],
        [8, 8, 20, 20],
    ]
