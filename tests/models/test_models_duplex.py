import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import ChunkTimes
from hetsched.models import Affine, DeviceModel, PhaseCurve
from hetsched.models.history import History, duplex_share
from hetsched.models.samples import duplex_samples, duplex_times, one_way_times, run_samples
from hetsched.plans import DevicePlan, Mode, Overlap, timeline


def test_copies_that_were_never_alone_count_as_they_were() -> None:
    copies = [(4, (0.0, 1.0)), (4, (1.0, 2.0))]
    assert one_way_times(copies, [(0.0, 2.0)]) == [(4, 1.0), (4, 1.0)]
    assert duplex_times(copies, [(0.0, 2.0)]) == []


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

    samples = run_samples(done, plan.sub_distributions, 128, times.makespan)
    history.add([*samples, *duplex_samples(done)])

    model = history.model()
    assert model is not None and model.h2d is not None and model.d2h is not None
    assert model.duplex == pytest.approx(duplex, rel=1e-6)
    assert float(model.h2d.time(8)) == pytest.approx(link.time(8))
    assert float(model.d2h.time(8)) == pytest.approx(link.time(8))


@pytest.mark.parametrize(("alone", "share"), [(1, 1.0), (2, 1.0), (25, 0.93)])
def test_a_share_near_one_needs_many_copies_that_ran_alone(alone: int, share: float) -> None:
    one_way = PhaseCurve([(units, units) for units in range(16, 16 + alone)])
    beside = {16.0: [16 / 0.93] * 5, 20.0: [20 / 0.7]}

    assert duplex_share(beside, one_way) == pytest.approx(share)


@given(st.integers(0, 10_000))
def test_noise_suggests_no_share_below_one(seed: int) -> None:
    errors = np.random.default_rng(seed).normal(0.0, 0.02, 5)
    beside = {16.0: (16 * np.exp(errors)).tolist()}

    assert duplex_share(beside, PhaseCurve([(16.0, 16.0)] * 5)) == 1.0
