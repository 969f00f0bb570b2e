"""Differences between two exports, key by key. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.models import Knot
from hetsched.store.models.export_format import Export, StoredModel
from hetsched.store.models.models_db import ModelKey


@dataclass(frozen=True)
class ModelDifference:
    """Two models of one key; either is None where an export lacks it.

    Attributes
    ----------
    ratios : sequence of (float, float), units and a ratio
        Seconds of the second over seconds of the first, at the sizes measured in both; without
        such sizes, at those of either that lie within the range of both.
    agree : bool
        The confidence intervals overlap at every size measured in both.
    """

    key: ModelKey
    first: StoredModel | None
    second: StoredModel | None
    ratios: Sequence[tuple[float, float]] = ()
    agree: bool = True


def difference(first: Export, second: Export) -> list[ModelDifference]:
    """Compare two exports; return all keys of both, sorted."""
    first_models = {model.key: model for model in first.models}
    second_models = {model.key: model for model in second.models}
    keys = sorted(first_models | second_models)
    return [_compare(key, first_models.get(key), second_models.get(key)) for key in keys]


def _compare(
    key: ModelKey, first: StoredModel | None, second: StoredModel | None
) -> ModelDifference:
    if first is None or second is None:
        return ModelDifference(key, first, second)
    first_model, second_model = first.history().model(), second.history().model()
    if first_model is None or second_model is None:
        return ModelDifference(key, first, second)
    first_knots, second_knots = first.knots("total"), second.knots("total")
    sizes = _common_sizes(
        [knot.units for knot in first_knots], [knot.units for knot in second_knots]
    )
    ratios = [
        (size, float(second_model.time(size)) / float(first_model.time(size))) for size in sizes
    ]
    by_size = {knot.units: knot for knot in second_knots}
    pairs = [(knot, by_size[knot.units]) for knot in first_knots if knot.units in by_size]
    return ModelDifference(key, first, second, ratios, all(_overlap(*pair) for pair in pairs))


def _common_sizes(first: Sequence[float], second: Sequence[float]) -> list[float]:
    common = sorted(set(first).intersection(second))
    if common:
        return common
    lower, upper = max(min(first), min(second)), min(max(first), max(second))
    return sorted({size for size in (*first, *second) if lower <= size <= upper})


def _overlap(first: Knot, second: Knot) -> bool:
    return first.low <= second.high and second.low <= first.high
