"""Host overhead: learnt as a curve of the device, and left out of the curves of cores."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.device import ChunkTimes
from hetsched.errors import UsageError
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.models.curves.delayed import Delayed, delayed
from hetsched.models.evidence.history import History
from hetsched.models.evidence.host_overhead import (
    overhead_by_core,
    overhead_seconds,
    without_overhead,
)
from hetsched.models.evidence.samples import Sample, run_samples


def core(start: float, seconds: float, busy: float | None) -> ChunkTimes:
    return ChunkTimes(compute=(start, start + seconds), busy=busy)


def linked(start: float, seconds: float | None) -> ChunkTimes:
    span = (start, start + 1)
    return ChunkTimes(copy_in=span, compute=span, copy_out=span, host_overhead=seconds)


def test_host_overhead_is_a_curve_of_the_device_that_causes_it() -> None:
    history = History()
    for units, seconds in [(4, 0.5), (8, 0.9), (16, 1.7)]:
        chunks = [(units, linked(0, seconds))]
        history.add(run_samples(chunks, ((units,),), units, 1.0, link=True))
    model = history.model(True)

    assert model is not None
    assert model.host_overhead is not None
    assert model.host_overhead.time(32.0) == pytest.approx(3.3)
    assert overhead_seconds([(4, linked(0, 0.5)), (4, linked(1, None))]) == 0.5


def test_observations_without_host_overhead_still_count() -> None:
    old = [Sample("h2d", 4, 1.0), Sample("compute", 4, 1.0), Sample("total", 4, 3.0)]

    model = History(1, old).model(True)

    assert model is not None
    assert model.host_overhead is None


def test_host_overhead_that_was_not_measured_is_not_learnt() -> None:
    samples = run_samples([(4, linked(0, None))], ((4,),), 4, 1.0, link=True)

    assert "host_overhead" not in {sample.curve for sample in samples}


def test_cores_share_the_overhead_in_proportion_and_lose_no_more_than_it() -> None:
    cores = {"cpu0": [(1, core(0, 3.0, 2.0))], "cpu1": [(1, core(0, 2.5, 2.0))]}

    assert overhead_by_core(cores, 0.6) == pytest.approx({"cpu0": 0.4, "cpu1": 0.2})
    assert overhead_by_core(cores, 9.0) == pytest.approx({"cpu0": 1.0, "cpu1": 0.5})
    assert overhead_by_core({"cpu0": [(1, core(0, 3.0, None))]}, 0.6) == {"cpu0": 0.0}


def test_a_core_s_curve_is_of_its_own_work() -> None:
    chunks = [(2, core(0, 1.2, 1.0)), (2, core(1.2, 1.0, 1.0)), (4, core(2.2, 2.4, 2.0))]

    net = without_overhead(chunks, 0.6)

    lengths = [times.compute[1] - times.compute[0] for _, times in net]
    assert lengths == pytest.approx([1.0, 1.0, 2.0])
    assert without_overhead(chunks, 0.0) == tuple(chunks)


def test_a_core_shared_only_with_host_overhead_is_not_contended() -> None:
    chunks = [(4, core(0, 1.3, 1.0))]

    gross = run_samples(chunks, ((4,),), 4, 1.3)
    net = run_samples(without_overhead(chunks, 0.3), ((4,),), 4, 1.0)

    assert all(sample.contended for sample in gross)
    assert not any(sample.contended for sample in net)
    assert [sample.seconds for sample in net] == pytest.approx([1.0, 1.0])


def test_a_delay_is_added_everywhere_except_at_zero_units() -> None:
    curve = PiecewiseLinear([(10, 1.0), (20, 3.0)])
    late = Delayed(curve.segments, 0.5)
    x = np.array([0.0, 1.0, 10.0, 15.0, 20.0, 50.0])

    assert late.time(x) == pytest.approx(np.where(x > 0, curve.time(x) + 0.5, 0.0))
    assert [late.inverse(late.time(float(units))) for units in x] == pytest.approx(list(x))
    assert late.inverse(0.4) == 0.0
    assert late.points[:, 1] == pytest.approx([1.5, 3.5])
    assert late.fingerprint() == Delayed(curve.segments, 0.5).fingerprint()


def test_a_delayed_curve_does_not_learn() -> None:
    with pytest.raises(UsageError, match="doesn't learn"):
        Delayed(Affine(1.0, 1.0).segments, 1.0).observe(1, 1)


def test_without_a_delay_a_curve_is_itself() -> None:
    curve = Affine(1.0, 1.0)

    assert delayed(curve, 0.0) is curve


def test_host_overhead_must_be_a_curve() -> None:
    with pytest.raises(UsageError, match="host_overhead: 3 has no time and speed"):
        DeviceModel(Affine(1.0, 1.0), Affine(1.0, 1.0), host_overhead=3)  # type: ignore[arg-type]
