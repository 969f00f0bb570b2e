from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import ChunkTimes
from hetsched.models import Affine, DeviceModel
from hetsched.models.history import History
from hetsched.models.samples import Sample, run_samples
from hetsched.plans import DevicePlan, Mode, Overlap, timeline


def test_copies_that_were_never_alone_count_as_they_were() -> None:
    chunks = [
        (4, ChunkTimes(copy_in=(k, k + 1.0), compute=(k + 1.0, 9.0), copy_out=(k, k + 1.0)))
        for k in (0.0, 1.0)
    ]
    copies = [s for s in run_samples(chunks, (), 8, 9.0) if s.curve not in ("compute", "total")]
    assert [(s.curve, s.seconds) for s in copies] == [("h2d", 1.0)] * 2 + [("d2h", 1.0)] * 2


@pytest.mark.parametrize("duplex", [(1.0, 1.0), (0.6, 0.75)])
def test_the_shares_of_a_device_are_learnt_from_one_run(duplex: tuple[float, float]) -> None:
    link = Affine(1e-5, 1e-3)
    truth = DeviceModel(Affine(0.0, 1e-3), Affine(1e-5, 2e-4), link, link, duplex=duplex)
    plan = DevicePlan(((8,) * 16,), Mode.RING, 3)
    times = timeline(plan, truth, Overlap.FULL)
    done = [
        (c.units, ChunkTimes(copy_in=c.copy_in, compute=c.compute, copy_out=c.copy_out))
        for c in times.chunks
    ]
    history = History()

    history.add(run_samples(done, plan.sub_distributions, 128, times.makespan))

    model = history.model()
    assert model is not None and model.h2d is not None and model.d2h is not None
    assert model.duplex == pytest.approx(duplex, rel=1e-6)
    assert float(model.h2d.time(8)) == pytest.approx(link.time(8))
    assert float(model.d2h.time(8)) == pytest.approx(link.time(8))


def share_of(alone: Sequence[int], *beside: tuple[int, float]) -> float:
    """The share of h2d, by copies alone that took a second a unit, and by these beside d2h."""
    history = History()
    history.add([Sample("total", 1, 1.0), *(Sample("h2d", units, units) for units in alone)])
    for units, seconds in beside:
        history.add([Sample("h2d_beside", units, seconds)])
    model = history.model()
    assert model is not None
    return model.duplex[0]


@pytest.mark.parametrize(("alone", "share"), [(1, 1.0), (2, 1.0), (25, 0.93)])
def test_a_share_near_one_needs_many_copies_that_ran_alone(alone: int, share: float) -> None:
    beside = [(16, 16 / 0.93)] * 5
    assert share_of(range(16, 16 + alone), *beside, (20, 20 / 0.7)) == pytest.approx(share)


@given(st.integers(0, 10_000))
def test_noise_suggests_no_share_below_one(seed: int) -> None:
    errors = np.random.default_rng(seed).normal(0.0, 0.02, 5)
    assert share_of([16], *((16, 16 * error) for error in np.exp(errors).tolist())) == 1.0
