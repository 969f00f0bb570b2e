"""Performance models: how long x units take, as functions learnt from runs. Pure.

Speed functions, the model of one device (`DeviceModel`), and the evidence behind both, which
`hetsched.store` keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import lazy_names

if TYPE_CHECKING:
    from hetsched.models.confidence import Knot
    from hetsched.models.functions import (
        Affine,
        Constant,
        Curve,
        DeviceModel,
        PiecewiseLinear,
        Polyline,
        SpeedFunction,
    )
    from hetsched.models.phases import PhaseCurve
    from hetsched.models.splines import Akima

__all__ = [
    "Affine",
    "Akima",
    "Constant",
    "Curve",
    "DeviceModel",
    "Knot",
    "PhaseCurve",
    "PiecewiseLinear",
    "Polyline",
    "SpeedFunction",
]

__getattr__ = lazy_names(
    __name__,
    {
        "confidence": "Knot",
        "functions": "Affine Constant Curve DeviceModel PiecewiseLinear Polyline SpeedFunction",
        "phases": "PhaseCurve",
        "splines": "Akima",
    },
)
