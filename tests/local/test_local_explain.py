"""Jobs of the embedded engine explained, on devices whose clocks are computed."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from virtual_machine import VIRTUAL

import hetsched
from hetsched.config import parse
from hetsched.errors import InputMissing, UsageError

MACHINE = parse(VIRTUAL, "test")


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with hetsched.Local(MACHINE, learn=False) as local:
        yield local


@pytest.fixture(scope="module")
def jobs(local: hetsched.Local) -> list[Any]:
    """Three of a kind, one after the other."""
    jobs = []
    for _ in range(3):
        jobs.append(local.submit("fft", batch="64x32x32"))
        jobs[-1].result(60)
    return jobs


def test_the_explanation_agrees_with_the_report(jobs: list[Any]) -> None:
    for job in jobs:
        explanation, report = job.explain(), job.report
        assert (explanation.job, explanation.state, explanation.seconds) == (
            job.id,
            "done",
            report.seconds,
        )
        for device, reported in zip(explanation.devices, report.devices, strict=True):
            assert (device.device, device.share, device.seconds) == (
                reported.device,
                reported.share,
                reported.seconds,
            )
            assert device.measured.copy_in == pytest.approx(reported.copy_in_seconds)
            assert device.measured.compute == pytest.approx(reported.compute_seconds)
            assert device.measured.copy_out == pytest.approx(reported.copy_out_seconds)
            spent = device.time_breakdown
            total = spent.computing + spent.copying + spent.between + spent.before + spent.idle
            assert total == pytest.approx(report.seconds)


def test_timelines_begin_with_the_job(jobs: list[Any]) -> None:
    lines = jobs[-1].timeline()

    assert set(lines) == {"core0", "emu0"}
    for device in jobs[-1].report.devices:
        line = lines[device.device]
        assert tuple(chunk.units for chunk in line.chunks) == device.chunks
        first = line.chunks[0]
        assert (first.copy_in or first.compute)[0] == 0.0
        assert line.makespan == pytest.approx(device.seconds)


def test_once_it_has_learnt_the_plan_says_what_was_measured(jobs: list[Any]) -> None:
    first, last = jobs[0].explain(), jobs[-1].explain()

    assert (first.predicted_seconds, first.whole_unit_bound) == (None, None)
    assert [device.runs for device in first.devices] == [None, None]
    assert all(device.runs for device in last.devices)
    assert last.fluid_bound <= last.whole_unit_bound <= last.seconds * (1 + 1e-6)
    emu = last.devices[1]
    assert emu.mode == "ring"
    assert emu.plan.makespan == pytest.approx(emu.timeline.makespan, rel=1e-6)
    assert emu.hidden == pytest.approx(emu.predicted_hidden, abs=1e-6)
    assert {way.description for way in last.alternatives} == {
        "equal shares",
        "only core0",
        "only emu0",
    }


def test_models_that_changed_since_change_no_explanation(jobs: list[Any]) -> None:
    before = str(jobs[1].explain())
    jobs[1].explain()

    assert str(jobs[1].explain()) == before
    assert before.startswith("job 2, done: fft batch=64x32x32")


def test_an_unknown_job_is_one_line(local: hetsched.Local, jobs: list[Any]) -> None:
    with pytest.raises(InputMissing, match=r"no job 99; the newest is \d+"):
        local.explain(99)


def test_a_cancelled_job_is_explained_too(local: hetsched.Local) -> None:
    running: Any
    waiting: Any
    running, waiting = (local.submit("fft", batch="64x32x32") for _ in range(2))
    waiting.cancel()
    concurrent.futures.wait([running, waiting], 60)

    explanation = waiting.explain()

    assert explanation.state == waiting.report.state
    assert str(explanation).startswith(f"job {waiting.id}, {explanation.state}: fft")


def test_a_callback_may_not_wait_for_its_own_thread(local: hetsched.Local) -> None:
    outcome: Future[Any] = Future()

    def called(state: object) -> None:
        if not outcome.done():
            try:
                outcome.set_result(local.explain(1))
            except Exception as error:
                outcome.set_exception(error)

    local.submit("fft", batch="1x8x8", follow=called)
    with pytest.raises(UsageError, match=r"explain can't be called from a callback"):
        outcome.result(60)


def test_a_closed_engine_says_so() -> None:
    with hetsched.Local(MACHINE, learn=False) as local:
        job = local.submit("fft", batch="1x8x8")
        job.result(60)
    with pytest.raises(UsageError, match="closed"):
        job.explain()
