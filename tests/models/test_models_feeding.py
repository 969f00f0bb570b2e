"""Feeding a device: what is learnt of it, and that cores are known net of it."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.device import ChunkTimes
from hetsched.errors import UsageError
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.models.curves.delayed import Delayed, delayed
from hetsched.models.evidence.history import History
from hetsched.models.evidence.host_overhead import fed, net, taken
from hetsched.models.evidence.samples import Sample, samples


def core(start: float, seconds: float, busy: float | None) -> ChunkTimes:
    return ChunkTimes(compute=(start, start + seconds), busy=busy)


def linked(start: float, seconds: float | None) -> ChunkTimes:
    span = (start, start + 1)
    return ChunkTimes(copy_in=span, compute=span, copy_out=span, fed=seconds)


def test_feeding_is_a_curve_of_the_device_that_is_fed() -> None:
    history = History()
    for units, seconds in [(4, 0.5), (8, 0.9), (16, 1.7)]:
        chunks = [(units, linked(0, seconds))]
        history.add(samples(chunks, ((units,),), units, 1.0, link=True))
    model = history.model(True)

    assert model is not None
    assert model.feed is not None
    assert model.feed.time(32.0) == pytest.approx(3.3)
    assert fed([(4, linked(0, 0.5)), (4, linked(1, None))]) == 0.5


def test_what_was_learnt_before_feeding_was_known_still_counts() -> None:
    old = [Sample("h2d", 4, 1.0), Sample("compute", 4, 1.0), Sample("total", 4, 3.0)]

    model = History(1, old).model(True)

    assert model is not None
    assert model.feed is None


def test_nobody_knows_what_feeding_took_so_nothing_is_learnt() -> None:
    found = samples([(4, linked(0, None))], ((4,),), 4, 1.0, link=True)

    assert "feed" not in {one.curve for one in found}


def test_cores_gave_up_in_proportion_and_no_more_than_feeding_took() -> None:
    cores = {"cpu0": [(1, core(0, 3.0, 2.0))], "cpu1": [(1, core(0, 2.5, 2.0))]}

    assert taken(cores, 0.6) == pytest.approx({"cpu0": 0.4, "cpu1": 0.2})
    assert taken(cores, 9.0) == pytest.approx({"cpu0": 1.0, "cpu1": 0.5})
    assert taken({"cpu0": [(1, core(0, 3.0, None))]}, 0.6) == {"cpu0": 0.0}


def test_a_core_is_known_by_what_it_takes_alone() -> None:
    chunks = [(2, core(0, 1.2, 1.0)), (2, core(1.2, 1.0, 1.0)), (4, core(2.2, 2.4, 2.0))]

    alone = net(chunks, 0.6)

    lengths = [times.compute[1] - times.compute[0] for _, times in alone]
    assert lengths == pytest.approx([1.0, 1.0, 2.0])
    assert net(chunks, 0.0) == tuple(chunks)


def test_a_core_that_only_feeders_share_is_not_disturbed() -> None:
    chunks = [(4, core(0, 1.3, 1.0))]

    gross = samples(chunks, ((4,),), 4, 1.3)
    alone = samples(net(chunks, 0.3), ((4,),), 4, 1.0)

    assert all(one.disturbed for one in gross)
    assert not any(one.disturbed for one in alone)
    assert [one.seconds for one in alone] == pytest.approx([1.0, 1.0])


def test_a_delayed_curve_is_later_by_as_much_everywhere_but_at_nothing() -> None:
    curve = PiecewiseLinear([(10, 1.0), (20, 3.0)])
    late = Delayed(curve, 0.5)
    x = np.array([0.0, 1.0, 10.0, 15.0, 20.0, 50.0])

    assert late.time(x) == pytest.approx(np.where(x > 0, curve.time(x) + 0.5, 0.0))
    assert [late.inverse(late.time(float(one))) for one in x] == pytest.approx(list(x))
    assert late.inverse(0.4) == 0.0
    assert late.points[:, 1] == pytest.approx([1.5, 3.5])
    assert late.segments is Delayed(curve, 0.5).segments


def test_a_delayed_curve_learns_nothing() -> None:
    with pytest.raises(UsageError, match="doesn't learn"):
        Delayed(Affine(1.0, 1.0), 1.0).observe(1, 1)


def test_without_a_delay_a_curve_is_itself() -> None:
    curve = Affine(1.0, 1.0)

    assert delayed(curve, 0.0) is curve


def test_feeding_must_be_a_curve() -> None:
    with pytest.raises(UsageError, match="feed: 3 has no time and speed"):
        DeviceModel(Affine(1.0, 1.0), Affine(1.0, 1.0), feed=3)  # type: ignore[arg-type]
