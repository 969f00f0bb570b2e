"""Equal cores learn together."""

import numpy as np
import pytest

from hetsched.models import PiecewiseLinear
from hetsched.models.evidence.equal_cores import pool_equal_cores


def measured(
    factor: float, sizes: list[int], noise: float = 0.0, seed: int = 0
) -> PiecewiseLinear:
    """A core that takes `factor` seconds a unit, and 2 more for each operation."""
    rng = np.random.default_rng(seed)
    luck = np.exp(noise * rng.standard_normal(len(sizes)))
    return PiecewiseLinear(
        zip(sizes, factor * (2 + np.array(sizes, dtype=float)) * luck, strict=True)
    )


def test_an_observation_of_one_core_holds_for_all() -> None:
    first, second = pool_equal_cores((measured(1, [10, 100]), measured(1, [10, 40])))
    for size in (10, 40, 100):
        assert first.time(size) == second.time(size) == pytest.approx(2 + size)


def test_a_slower_core_has_the_same_factor_at_every_size() -> None:
    first, second = pool_equal_cores((measured(1, [10, 40, 100]), measured(2, [10])))
    for size in (10, 40, 100):
        assert second.time(size) == pytest.approx(2 * first.time(size))


def test_noise_doesn_t_make_cores_differ_and_many_of_them_average_it_out() -> None:
    cores = tuple(measured(1, [100] * 5, noise=0.05, seed=seed) for seed in range(64))
    times = {core.time(100) for core in pool_equal_cores(cores)}
    assert len(times) <= 3
    assert np.median([core.time(100) for core in pool_equal_cores(cores)]) == pytest.approx(
        102, rel=0.02
    )


def test_a_core_slower_by_a_tenth_is_detected() -> None:
    cores = [measured(1 + 0.1 * (seed == 3), [100] * 20, 0.03, seed) for seed in range(4)]
    times = [core.time(100) for core in pool_equal_cores(tuple(cores))]
    assert times[3] == pytest.approx(1.1 * times[0], rel=0.03)
    assert times[0] == times[1] == times[2]


def test_a_core_measured_far_from_the_others_sizes_keeps_its_curve() -> None:
    far = measured(3, [5000])
    *_, result = pool_equal_cores((measured(1, [10, 20]), measured(1, [10]), far))
    assert result is far


def test_a_core_alone_keeps_its_curve() -> None:
    core = measured(1, [10])
    assert pool_equal_cores((core,)) == (core,)
    assert pool_equal_cores(()) == ()


def test_each_core_keeps_its_own_evidence() -> None:
    first, second = pool_equal_cores((measured(1, [10, 40]), measured(1, [10])))
    assert (len(first.knots()), len(second.knots())) == (2, 1)
    assert len(second.points) == 2
    second.observe(10, 12.0)
    assert len(second.points) == 1
