"""The model of one device: the four speed functions of Ilic & Sousa, section 2."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from hetsched.errors import UsageError
from hetsched.models.functions import SpeedFunction
from hetsched.models.validation import require_non_negative, require_positive


@dataclass(frozen=True)
class DeviceModel:
    """The speed functions of one device; itself a speed function, that of its total.

    Attributes
    ----------
    total : SpeedFunction
        psi_t: a whole share, copies included.
    compute : SpeedFunction
        psi_w: one kernel call.
    h2d, d2h : SpeedFunction or None
        sigma_iota, sigma_o: one copy in, one copy out. None: no link, or nothing to copy.
    duplex : (float, float)
        Share of its one-way rate that h2d, d2h keeps while the other is busy; 0 < share <= 1.
    call_seconds : float, seconds
        Cost of each call of a core's kernel. 0: none that matters, or unknown.

    Raises
    ------
    UsageError
        A curve has no time and speed; a duplex share or `call_seconds` is out of range.
    """

    total: SpeedFunction
    compute: SpeedFunction
    h2d: SpeedFunction | None = None
    d2h: SpeedFunction | None = None
    duplex: tuple[float, float] = field(default=(1.0, 1.0), kw_only=True)
    call_seconds: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        curves = {"total": self.total, "compute": self.compute, "h2d": self.h2d, "d2h": self.d2h}
        for name, curve in curves.items():
            optional = name in ("h2d", "d2h") and curve is None
            if not (optional or (hasattr(curve, "time") and hasattr(curve, "speed"))):
                raise UsageError(f"{name}: {curve!r} has no time and speed")
        if self.call_seconds != 0.0:
            require_non_negative("call_seconds", self.call_seconds)
        if self.duplex == (1.0, 1.0):
            return
        try:
            first, second = (require_positive("duplex", share) for share in self.duplex)
        except (TypeError, ValueError):
            first = second = math.inf
        if max(first, second) > 1:
            raise UsageError(f"duplex: {self.duplex} must be two numbers above 0, at most 1")

    @property
    def link(self) -> bool:
        return self.h2d is not None or self.d2h is not None

    def time(self, x: Any, /) -> Any:
        """Return the seconds for a whole share of `x` units (number or array)."""
        return self.total.time(x)

    def speed(self, x: Any, /) -> Any:
        """Return units per second at a share of `x` units (number or array)."""
        return self.total.speed(x)
