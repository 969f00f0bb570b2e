import pytest

from hetsched.models import PiecewiseLinear
from hetsched.models.equal_cores import pooled_curves


def measured(factor: float, sizes: list[int]) -> PiecewiseLinear:
    """A core that takes `factor` seconds a unit, and 2 more for each operation."""
    return PiecewiseLinear((size, factor * (2.0 + size)) for size in sizes)


def test_an_observation_of_one_core_holds_for_all() -> None:
    first, second = pooled_curves((measured(1, [10, 100]), measured(1, [10, 40])))
    for size in (10, 40, 100):
        assert first.time(size) == second.time(size) == pytest.approx(2 + size)


def test_a_slower_core_has_the_same_factor_at_every_size() -> None:
    first, second = pooled_curves((measured(1, [10, 40, 100]), measured(2, [10] * 3)))
    for size in (10, 40, 100):
        assert second.time(size) == pytest.approx(2 * first.time(size))


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
