"""Performance models: how long x units take, as functions learnt from runs. Pure.

Owns speed functions (`curves`, one file each), the model of one device (`DeviceModel`), and the
observations behind both (`evidence`). `hetsched.store` keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import lazy_names

if TYPE_CHECKING:
    from hetsched.models.curves.akima import Akima
    from hetsched.models.curves.constant import Constant
    from hetsched.models.curves.curve import Curve, LearningCurve, SpeedFunction
    from hetsched.models.curves.monotone import Monotone
    from hetsched.models.curves.phases.affine import Affine
    from hetsched.models.curves.phases.phase_curve import PhaseCurve
    from hetsched.models.curves.phases.polyline import Polyline
    from hetsched.models.curves.piecewise_linear import PiecewiseLinear
    from hetsched.models.device_model import DeviceModel
    from hetsched.models.evidence.confidence import Knot

__all__ = [
    "Affine",
    "Akima",
    "Constant",
    "Curve",
    "DeviceModel",
    "Knot",
    "LearningCurve",
    "Monotone",
    "PhaseCurve",
    "PiecewiseLinear",
    "Polyline",
    "SpeedFunction",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Affine": "curves.phases.affine",
        "Akima": "curves.akima",
        "Constant": "curves.constant",
        "Curve": "curves.curve",
        "DeviceModel": "device_model",
        "Knot": "evidence.confidence",
        "LearningCurve": "curves.curve",
        "Monotone": "curves.monotone",
        "PhaseCurve": "curves.phases.phase_curve",
        "PiecewiseLinear": "curves.piecewise_linear",
        "Polyline": "curves.phases.polyline",
        "SpeedFunction": "curves.curve",
    },
)
