"""Measurements on request: repeat chosen sizes until their times are accurate.

Sizes alternate, so that a disturbance doesn't affect all repeats of one. A size is repeated until
its confidence interval is narrow (Khaleghzadeh, Reddy & Lastovetsky, HPOPTA, TPDS 2018: 2.5 %).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hetsched.job import DeviceReport
from hetsched.models.confidence import Knot, knot_of
from hetsched.models.samples import CurveName

CURVES: tuple[CurveName, ...] = ("total", "compute", "h2d", "d2h")
MIN_REPEATS = 3
"""Of a size before its interval counts."""


@dataclass(eq=False)
class MeasurementCase:
    """One job to repeat, and its times: `units` on each device, each with a variant.

    All repeats count; drift during the measurement counts as noise.
    """

    units: int
    variants: Mapping[str, str]  # Device -> variant
    repeats: int = 0
    late: int = 0  # Phases of emulated devices that took longer than modelled
    seconds: defaultdict[str, dict[CurveName, list[float]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Device -> curve -> of each repeat; "total" first."""

    def add(self, devices: Iterable[DeviceReport]) -> None:
        """Add a repeat; of phases only those of a share in one chunk have its size."""
        self.repeats += 1
        for each in devices:
            self.late += each.late
            copies = each.copy_in_seconds, each.copy_out_seconds
            has_phases = each.chunks == (self.units,) and any(copies)
            phases = (each.compute_seconds, *copies) if has_phases else ()
            for curve, value in zip(CURVES, (each.seconds, *phases), strict=False):
                if value > 0:
                    self.seconds[each.device].setdefault(curve, []).append(value)

    def knots(self, device: str) -> dict[CurveName, Knot]:
        """Return curve -> the evidence."""
        curves = self.seconds[device].items()
        return {curve: knot_of(float(self.units), repeats) for curve, repeats in curves}

    def half_width(self, *devices: str) -> float:
        """Return that of the widest interval of some devices, or of all, over its median."""
        widths = [
            max((knot.half_width for knot in self.knots(device).values()), default=math.inf)
            for device in devices or self.variants
        ]
        return max(widths)


class MeasurementSchedule:
    """Which case is next.

    `sizes`: units per device. `variants`: device -> those to measure; one with fewer than others
    repeats its last one, to keep the machine under its usual load. `until`: the half-width of the
    confidence interval to reach, relative to the median. `separate`: devices measured in jobs of
    their own, as a team uses the cores of others.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        variants: Mapping[str, Sequence[str]],
        until: float,
        max_repeats: int = 30,
        separate: Collection[str] = (),
    ) -> None:
        self.until, self.max_repeats = until, max_repeats
        together = {device: names for device, names in variants.items() if device not in separate}
        apart = [{device: names} for device, names in variants.items() if device in separate]
        self.cases = [
            MeasurementCase(
                size, {d: names[min(turn, len(names) - 1)] for d, names in group.items()}
            )
            for group in [together, *apart]
            for turn in range(max(map(len, group.values()), default=0))
            for size in dict.fromkeys(sizes)
        ]

    def ask(self) -> MeasurementCase | None:
        """Return the case to run next, the one with the fewest repeats; None when all are done."""
        left = (case for case in self.cases if not self.is_done(case))
        return min(left, key=lambda case: case.repeats, default=None)

    def is_done(self, case: MeasurementCase) -> bool:
        has_min_repeats = case.repeats >= min(MIN_REPEATS, self.max_repeats)
        is_narrow = has_min_repeats and case.half_width() <= self.until
        return is_narrow or case.repeats >= self.max_repeats

    def measured(self) -> dict[tuple[str, str, int], MeasurementCase]:
        """Return (device, variant, units) -> its first case, of variants that are repeated."""
        found = {
            (device, variant, case.units): case
            for case in reversed(self.cases)
            for device, variant in case.variants.items()
        }
        return dict(sorted(found.items()))
