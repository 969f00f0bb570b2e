"""The picture of an iterative job: a panel for each device, one of shares, one of residuals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from hetsched.cli.commands.run import Drawings
from hetsched.explain import Explanation
from hetsched.explain.recorder import IterationRecorder
from hetsched.explain.records import ITERATION_PHASES, IterationHistory
from tests.explain.iterations.story import PhaseTimes, explanation

pytest.importorskip("matplotlib")

from hetsched.cli.plots.iterations import figure


def panels(explained: Explanation) -> list[str]:
    assert explained.iterations is not None
    axes = figure(explained, explained.iterations).axes
    return [panel.get_ylabel().replace("\n", " ") for panel in axes]


def test_devices_shares_and_residual_have_panels() -> None:
    expected = ["cpu0 (ms)", "cpu1 (ms)", "emu0 (ms)", "share of the rows (%)", "residual"]

    assert panels(explanation(60)) == panels(explanation(5000)) == expected


def test_bars_have_the_height_of_the_phases() -> None:
    explained = explanation(20)
    assert explained.iterations is not None

    axes = figure(explained, explained.iterations).axes[2]

    bars = [(bar.get_x(), bar.get_height()) for bar in axes.patches]
    assert bars[0] == (pytest.approx(0.575), pytest.approx(10.0))
    assert len(bars) == 20 * len(ITERATION_PHASES)


def test_many_devices_of_a_kind_share_a_panel() -> None:
    recorder = IterationRecorder([*(f"cpu{i}" for i in range(16)), "gpu0"])
    recorder.add(1, (10,) * 17, [PhaseTimes(2e-6)] * 17)
    explained = Explanation(
        job=1, state="done", workload="w", load=170, iterations=recorder.history()
    )

    assert panels(explained) == ["cpu (16) (us)", "gpu0 (us)", "share of the rows (%)"]


def top_and_texts(times: Sequence[float]) -> tuple[float, list[str]]:
    recorder = IterationRecorder(["cpu0"])
    for iteration, seconds in enumerate(times, 1):
        recorder.add(iteration, (9,), [PhaseTimes(seconds)])
    history = recorder.history()
    explained = Explanation(job=1, state="done", workload="w", load=9, iterations=history)
    panel = figure(explained, history).axes[0]
    return panel.get_ylim()[1], [text.get_text() for text in panel.texts]


def test_a_long_iteration_does_not_flatten_the_others() -> None:
    times = [0.5, *[0.002] * 30]

    assert top_and_texts(times) == (
        pytest.approx(2.1),
        ["cut off: 1 longer iteration, up to 500 ms"],
    )


@pytest.mark.parametrize("times", [[0.003, *[0.0025] * 30], [0.003, 0.001], [0.003] * 2])
def test_nothing_is_cut_off_where_it_fits(times: list[float]) -> None:
    assert top_and_texts(times) == (pytest.approx(3.15), [])


@pytest.mark.parametrize("name", ["job.png", "job.svg"])
def test_a_file_is_written(tmp_path: Path, name: str) -> None:
    Drawings(None, str(tmp_path / name), force=False).write(explanation())

    assert (tmp_path / name).stat().st_size > 5000


def test_a_job_without_iterations_has_an_empty_picture() -> None:
    empty = IterationHistory(devices=("cpu0",))
    explained = Explanation(job=1, state="failed", workload="w", load=1, iterations=empty)

    assert panels(explained) == ["", ""]
