"""Performance models: how long x units take, as functions learnt from runs. Pure.

Owns speed functions (one file each), what is known of one device (`DeviceModel`), and which
measurement feeds which curve (`samples`). Where they are kept is the business of `hetsched.store`.
"""

from hetsched.models.curves.affine import Affine
from hetsched.models.curves.akima import Akima
from hetsched.models.curves.constant import Constant
from hetsched.models.curves.curve import Curve, LearningCurve, SpeedFunction
from hetsched.models.curves.monotone import Monotone
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
    "PiecewiseLinear",
    "SpeedFunction",
]
