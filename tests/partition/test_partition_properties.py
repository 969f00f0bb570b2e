import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partition_cases import Case, Scalar, monotone

import hetsched.models
from hetsched.models import Constant, DeviceModel, PiecewiseLinear
from hetsched.partition import Distribution, constant, geometric, optimal, smooth

Points = list[tuple[int, float]]
METHODS: dict[str, Callable[..., Distribution]] = {
    "constant": constant,
    "geometric": geometric,
    "smooth": smooth,
    "optimal": optimal,
}
LEARNING: dict[str, Callable[[], Any]] = {
    name: kind
    for name, kind in inspect.getmembers(hetsched.models, inspect.isclass)
    if hasattr(kind, "observe") and not inspect.isabstract(kind)
}
LEARNING["PiecewiseLinear, paper"] = lambda: PiecewiseLinear(shape="paper")
LEARNING["PiecewiseLinear, dips"] = lambda: PiecewiseLinear(shape="dips")
CLOSE = 1e-9
"""Relative: the root finder takes times for equal that differ by less."""

points = st.lists(st.tuples(st.integers(1, 60), st.floats(1e-3, 100)), min_size=1, max_size=5)
machines = st.lists(st.tuples(st.sampled_from(sorted(LEARNING)), points), min_size=1, max_size=4)


def learnt(name: str, observed: Points, factor: float = 1.0) -> Any:
    model = LEARNING[name]()
    for units, seconds in observed:
        model.observe(units, seconds * factor)
    return model


def rising(models: Sequence[Any], load: int) -> bool:
    """Whether no model's time falls from one whole size to the next, up to the load."""
    return all(bool((np.diff(model.time(np.arange(load + 1))) >= 0).all()) for model in models)


def strictly_rising(models: Sequence[Any], load: int) -> bool:
    """Whether every model's time rises all the way up to the load, between whole sizes too."""
    loads = np.linspace(0.0, load, 16 * load + 1)
    return all(bool((np.diff(model.time(loads)) > 0).all()) for model in models)


def best(method: str, models: Sequence[Any], load: int) -> bool:
    """Whether `method` promises the least makespan here; a root finder needs strict times."""
    if method == "smooth":
        return strictly_rising(models, load)
    return method == "optimal" or (method != "constant" and rising(models, load))


def test_all_our_speed_functions_are_tried() -> None:
    assert {"Affine", "Akima", "Constant", "PiecewiseLinear"} <= set(LEARNING)


@pytest.mark.parametrize("method", METHODS)
class TestPartitioner:
    @given(drawn=machines, load=st.integers(0, 40), data=st.data())
    def test_sum_limits_and_what_the_models_say(
        self, method: str, drawn: list[tuple[str, Points]], load: int, data: st.DataObject
    ) -> None:
        models = [learnt(name, observed) for name, observed in drawn]
        limits = [data.draw(st.none() | st.integers(0, 40)) for _ in models]
        limits[data.draw(st.integers(0, len(models) - 1))] = None

        result = METHODS[method](models, load, limits)

        assert sum(result.shares) == load
        for share, limit in zip(result.shares, limits, strict=True):
            assert type(share) is int
            assert 0 <= share <= (load if limit is None else limit)
        times = [float(m.time(x)) for m, x in zip(models, result.shares, strict=True) if x]
        assert result.makespan == pytest.approx(max(times, default=0.0), rel=1e-12)
        if times:
            assert result.spread == pytest.approx(max(times) / min(times) - 1, rel=1e-9, abs=1e-9)
        if best(method, models, load):
            expected = Case(models, load, limits).least()
            assert result.makespan == pytest.approx(expected, rel=CLOSE)

    @pytest.mark.parametrize("kind", sorted(LEARNING))
    def test_somebody_elses_model_is_split_like_ours(self, method: str, kind: str) -> None:
        curves = [
            learnt(kind, [(10, 2.0), (40, 5.0), (100, 50.0)]),
            learnt(kind, [(20, 5.0), (60, 15.0), (120, 40.0)]),
        ]

        result = METHODS[method]([Scalar(model) for model in curves], 100)

        assert result.makespan == pytest.approx(METHODS[method](curves, 100).makespan, rel=CLOSE)

    @pytest.mark.parametrize(
        ("load", "limits", "shares"),
        [
            (100, None, (10, 20, 30, 40)),
            (101, None, (10, 20, 30, 41)),
            (7, None, (1, 1, 2, 3)),
            (1, None, (0, 0, 0, 1)),
            (0, None, (0, 0, 0, 0)),
            (100, [5, None, None, None], (5, 21, 32, 42)),
            (60, [0, None, 0, None], (0, 20, 0, 40)),
            (np.int64(20), [5, 5, 5, np.int32(5)], (5, 5, 5, 5)),
        ],
    )
    def test_constant_speeds(
        self, method: str, load: int, limits: Any, shares: tuple[int, ...]
    ) -> None:
        result = METHODS[method]([Constant(speed) for speed in (1, 2, 3, 4)], load, limits)

        assert result.shares == shares or method == "optimal"

    def test_a_device_model_is_split_by_its_total(self, method: str) -> None:
        fast, slow = learnt("Constant", [(3, 1.0)]), learnt("Constant", [(1, 1.0)])

        models = [DeviceModel(fast, slow), DeviceModel(slow, fast)]

        assert METHODS[method](models, 8).shares == (6, 2)


def test_geometric_is_the_optimum_in_random_cases() -> None:
    for case in map(monotone, range(500)):
        result = geometric(case.models, case.load, case.limits)

        assert result.makespan == pytest.approx(case.least(), rel=1e-12)


HCL = (7696, 5196, 7852, 14418, 8000, 8173, 7288, 7396,
       9037, 8987, 13661, 14194, 11182, 14410, 12008, 15257)  # fmt: skip


def test_constant_splits_for_the_sixteen_processors_of_the_paper() -> None:
    shares = constant([Constant(speed) for speed in HCL], 10240).shares

    assert shares == (
        478, 323, 488, 896, 497, 508, 453, 460, 562, 559, 849, 882, 695, 896, 746, 948,
    )  # fmt: skip
