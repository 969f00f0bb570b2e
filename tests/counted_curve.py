"""A curve that counts the work of its users."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetsched.models import SpeedFunction


@dataclass(frozen=True)
class Counted:
    """A curve that counts the sizes at which it is evaluated."""

    curve: SpeedFunction
    sizes: list[int] = field(default_factory=list)

    def time(self, x: Any, /) -> Any:
        self.sizes.append(np.size(x))
        return self.curve.time(x)

    def speed(self, x: Any, /) -> Any:
        return self.curve.speed(x)
