import numpy as np
import pytest

from hetsched.models import PiecewiseLinear
from hetsched.models.equal_cores import pooled_curves


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
    first, second = pooled_curves((measured(1, [10, 100]), measured(1, [10, 40])))
    for size in (10, 40, 100):
        assert first.time(size) == second.time(size) == pytest.approx(2 + size)


def test_a_slower_core_has_the_same_factor_at_every_size() -> None:
    first, second = pooled_curves((measured(1, [10, 40, 100]), measured(2, [10] * 3)))
    for size in (10, 40, 100):
        assert second.time(size) == pytest.approx(2 * first.time(size))


def test_noise_doesn_t_make_cores_differ_and_many_of_them_average_it_out() -> None:
    cores = tuple(measured(1, [100] * 5, noise=0.05, seed=seed) for seed in range(64))
    times = {core.time(100) for core in pooled_curves(cores)}
    assert len(times) <= 3
    assert np.median([core.time(100) for core in pooled_curves(cores)]) == pytest.approx(
        102, rel=0.02
    )


def test_a_core_slower_by_a_tenth_is_detected() -> None:
    cores = [measured(1 + 0.1 * (seed == 3), [100] * 5, 0.01, seed) for seed in range(4)]
    times = [core.time(100) for core in pooled_curves(tuple(cores))]
    assert times[3] == pytest.approx(1.1 * times[0], rel=0.03)
    assert times[0] == times[1] == times[2]


@pytest.mark.parametrize("size", [1, 10])
def test_a_slow_core_is_equal_again_once_three_observations_say_so(size: int) -> None:
    slow = [(10, 72.0)] * 9
    equal = measured(1, [10] * 9)

    def factor(recovered: int) -> float:
        core = PiecewiseLinear([*slow, *[(size, 1.2 * size)] * recovered])
        first, second = pooled_curves((equal, core))
        return second.time(10) / first.time(10)

    assert [factor(0), factor(2)] == pytest.approx([6, 6], rel=0.01)
    assert factor(3) == 1


def test_a_core_measured_far_from_the_others_sizes_keeps_its_curve() -> None:
    far = measured(3, [5000] * 3)
    *_, result = pooled_curves((measured(1, [10] * 4), measured(1, [20] * 4), far))
    assert result is far
