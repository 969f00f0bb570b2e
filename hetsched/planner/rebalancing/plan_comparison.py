"""How two plans of a job differ. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetsched.errors import UsageError
from hetsched.models import SpeedFunction
from hetsched.planner.records import JobPlan


class ProposedCurve:
    """Seconds of a device's share as the last proposal predicted them."""

    curve: SpeedFunction | None = None

    def time(self, x: Any, /) -> Any:
        return self._measured().time(x)

    def speed(self, x: Any, /) -> Any:
        return self._measured().speed(x)

    def _measured(self) -> SpeedFunction:
        if self.curve is None:
            raise UsageError("no measurements for this device; it has no speed yet")
        return self.curve


def working_devices(plan: JobPlan) -> frozenset[str]:
    """Return the devices with a share."""
    return frozenset(assignment.device for assignment in plan.assignments)


def is_same_split(plan: JobPlan, other: JobPlan) -> bool:
    """Return whether the devices have the same shares and variants in both."""
    variants = {each.device: (each.plan.share, each.variants) for each in plan.assignments}
    return variants == {
        each.device: (each.plan.share, each.variants) for each in other.assignments
    }


def shares_of(plan: JobPlan, devices: Sequence[str]) -> tuple[int, ...]:
    """Return the units of each of `devices`, 0 without a share."""
    shares = {assignment.device: assignment.plan.share for assignment in plan.assignments}
    return tuple(shares.get(device, 0) for device in devices)
