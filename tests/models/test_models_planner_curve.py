"""What the planner asks of curves, and the defaults for third-party curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from hetsched.models import PiecewiseLinear
from hetsched.models.functions import planner_curve


@dataclass(frozen=True)
class ThirdParty:
    """A curve with time and speed only."""

    pace: float

    def time(self, x: Any, /) -> Any:
        return self.pace * x

    def speed(self, x: Any, /) -> Any:
        return 1 / self.pace


def test_a_third_party_curve_has_defaults() -> None:
    curve = planner_curve(ThirdParty(2.0))
    assert curve.fingerprint() is curve.evidence() is None
    assert curve.scaled(2.0) is None


def test_a_scaled_curve_keeps_its_evidence() -> None:
    curve = PiecewiseLinear([(10, 1.0), (20, 3.0)])
    scaled = curve.scaled(2.0)
    assert scaled is not None
    assert scaled.time(15) == pytest.approx(2 * curve.time(15))
    assert scaled.knots() == curve.knots()
    assert PiecewiseLinear().scaled(2.0) is None
