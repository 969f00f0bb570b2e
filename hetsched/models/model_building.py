"""The DeviceModel that follows from the windows of one model key. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from hetsched.models import Curve, DeviceModel, PhaseCurve, PiecewiseLinear, SpeedFunction
from hetsched.models.call_cost import CallCosts
from hetsched.models.cold_ratios import ColdRatios
from hetsched.models.curve_windows import Curves
from hetsched.models.evidence.duplex import duplex_share
from hetsched.models.evidence.observations import ObservationWindows
from hetsched.models.evidence.run_medians import cold_ratios
from hetsched.models.evidence.samples import CurveName


def core_model(
    curves: Curves, *, contention: float, variation: float, calls: CallCosts
) -> DeviceModel:
    """Return the model of a device without a link.

    Parameters
    ----------
    curves : dict of CurveName to ObservationWindows
        With a total.
    contention, variation : float
        As in `DeviceModel`.
    calls : CallCosts
    """
    total = PiecewiseLinear.of(_evidence(curves, "total", contention))
    has_compute = "compute" in curves
    compute = (
        PiecewiseLinear.of(_evidence(curves, "compute", contention)) if has_compute else total
    )
    cold = _evidence(curves, "cold", contention) if "cold" in curves else None
    model = DeviceModel(
        total,
        compute,
        cold=ColdRatios() if cold is None else cold_ratios(cold, total),
        contention=contention,
        variation=variation,
        call_units=calls.excluded,
        has_settled_calls=calls.is_settled,
    )
    _fit([total])  # chunk times aren't needed for planning
    return model


def linked_model(curves: Curves, contention: float) -> DeviceModel:
    """Return the model of a device with a link; arguments as of `core_model`."""
    total = PiecewiseLinear.of(_evidence(curves, "total", contention))
    compute, h2d, d2h, host_overhead = (
        _phase(curves, curve, contention) for curve in ("compute", "h2d", "d2h", "host_overhead")
    )
    model = DeviceModel(
        total,
        compute or total,
        h2d,
        d2h,
        duplex=(_duplex(curves, "h2d_beside", h2d), _duplex(curves, "d2h_beside", d2h)),
        host_overhead=host_overhead,
        contention=contention,
    )
    _fit([model.total, model.compute, model.h2d, model.d2h])
    return model


def _fit(curves: Iterable[SpeedFunction | None]) -> None:
    """Fit curves now rather than while planning."""
    for curve in curves:
        if isinstance(curve, Curve):
            _ = curve.segments


def _phase(curves: Curves, curve: CurveName, contention: float) -> PhaseCurve | None:
    return PhaseCurve.of(_evidence(curves, curve, contention)) if curve in curves else None


def _duplex(curves: Curves, curve: CurveName, one_way: PhaseCurve | None) -> float:
    if one_way is None or curve not in curves:
        return 1.0
    alone = sum(knot.count for knot in one_way.knots())
    return duplex_share(curves[curve].latest(), one_way.time, alone)


def _evidence(curves: Curves, curve: CurveName, contention: float) -> ObservationWindows:
    """Return the windows of a curve. A busy core or a hot GPU doesn't slow down copies."""
    windows = curves[curve]
    is_slowed = curve in ("total", "compute", "cold") and contention != 1.0
    return windows.scaled(contention) if is_slowed else windows
