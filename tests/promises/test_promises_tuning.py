"""Slow preparations wait until no job runs, and until they are worth it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from served import Daemon, Gate, Place, computes, serving, until

import hetsched

TUNED, TOY = "tuned_toy:TunedToy", "toys:Toy"


@pytest.fixture(scope="module")
def own() -> Iterator[Daemon]:
    with serving() as daemon:
        yield daemon


@pytest.fixture
def idle(own: Daemon) -> Iterator[hetsched.Client]:
    with own.client() as client:
        yield client


def run(client: hetsched.Client, folder: Path, **params: Any) -> Any:
    job = client.submit(TUNED, np.ones((40, 4)), folder=str(folder), **params)
    assert np.array_equal(job.result(60), np.full((40, 4), 3.0))
    return job.report


def variants(report: Any) -> set[str]:
    return {name for device in report.devices for name in device.variant.split(", ")}


def test_a_variant_is_tuned_while_no_job_runs_and_used_from_then_on(
    idle: hetsched.Client, tmp_path: Path
) -> None:
    before = run(idle, tmp_path)
    until((tmp_path / "tuned").exists)
    tuning = int((tmp_path / "begun").read_text())
    until(lambda: not psutil.pid_exists(tuning))  # jobs one after the other would stop it
    news: list[str] = []

    def is_told() -> bool:
        after = run(idle, tmp_path)
        news.extend(note for note in after.notes if "while no job ran" in note)
        return bool(news) and "planned" in variants(after)

    until(is_told)
    assert variants(before) == {"plain"}
    assert "planning toys" in news[0]
    assert len(news) == 1


def test_it_takes_no_more_than_a_tenth_of_the_time_computed(
    idle: hetsched.Client, tmp_path: Path
) -> None:
    dear, cheap = tmp_path / "dear", tmp_path / "cheap"
    for folder, seconds in ((dear, 3600.0), (cheap, 1e-3)):
        folder.mkdir()
        run(idle, folder, seconds=seconds)

    until((cheap / "tuned").exists)

    assert not (dear / "begun").exists()


def test_it_stops_while_a_job_runs(idle: hetsched.Client, tmp_path: Path, gate: Gate) -> None:
    run(idle, tmp_path, waits=True)
    begun = tmp_path / "begun"
    until(lambda: begun.exists() and begun.read_text().strip())
    tuning = psutil.Process(int(begun.read_text()))

    job = idle.submit(TOY, np.ones((40, 4)), gate=str(gate.path))
    computes(job)
    until(lambda: tuning.status() == psutil.STATUS_STOPPED)
    gate.open()
    job.result(60)
    (tmp_path / "go").touch()

    until((tmp_path / "tuned").exists)


def test_what_cannot_be_tuned_is_tried_once_and_jobs_go_on(
    idle: hetsched.Client, tmp_path: Path
) -> None:
    failing, other = tmp_path / "failing", tmp_path / "other"
    for folder, fails in ((failing, True), (other, False)):
        folder.mkdir()
        run(idle, folder, fails=fails)
    until((other / "tuned").exists)

    assert variants(run(idle, failing, fails=True)) == {"plain"}
    assert len((failing / "begun").read_text().split()) == 1


def test_a_stopping_daemon_does_not_wait_for_it(tmp_path: Path) -> None:
    with serving() as daemon, daemon.client() as client:
        run(client, tmp_path, waits=True)
        until((tmp_path / "begun").exists)

        assert daemon.stop() == 0

    assert not (tmp_path / "tuned").exists()


def test_without_a_daemon_a_job_tunes_first_once_that_is_worth_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    words = ("run", TUNED, "--units", "40", "--folder", str(tmp_path))
    ended = [place.call(*words) for _ in range(2)]

    assert [each.error for each in ended] == ["", ""]
    assert "planning toys" not in ended[0].err + ended[0].out
    assert "planning toys: " in ended[1].err + ended[1].out
    assert (tmp_path / "tuned").exists()
