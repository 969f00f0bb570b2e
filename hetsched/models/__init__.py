"""Performance models: how long x units take, as functions learnt from runs. Pure.

Owns speed functions (one file each), what is known of one device (`DeviceModel`), and which
measurement feeds which curve (`samples`). Where they are kept is the business of `hetsched.store`.
"""

from hetsched.models.affine import Affine
from hetsched.models.akima import Akima
from hetsched.models.constant import Constant
from hetsched.models.curve import Curve, LearningCurve, SpeedFunction
from hetsched.models.device_model import DeviceModel
from hetsched.models.evidence import Knot
from hetsched.models.pchip import Monotone
from hetsched.models.piecewise_linear import PiecewiseLinear

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
