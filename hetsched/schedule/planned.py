"""psi_t from plans: what a device with a link takes for a share, when it follows its best plan.

Ilic & Sousa measure psi_t of whatever was executed last; here the partitioner weighs plans. The
curve is estimated by closed form, then made exact where the partitioner looks.
"""

from __future__ import annotations

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, PiecewiseLinear
from hetsched.schedule.best import even_plan
from hetsched.schedule.equal import correction, estimated_total, scaled
from hetsched.schedule.plan import DevicePlan, Overlap
from hetsched.schedule.timeline import timeline


class Planned:
    """Plans of one device for shares of one load, each made when it is first asked for.

    Parameters
    ----------
    model : DeviceModel
    memory : MemoryDemand
    overlap : Overlap
    load : int, units
        No share is larger.

    Raises
    ------
    DataError
        Not even one unit fits.
    """

    def __init__(
        self, model: DeviceModel, memory: MemoryDemand, overlap: Overlap, load: int
    ) -> None:
        self._model = model
        self._memory = memory
        self._overlap = overlap
        self._estimated = estimated_total(model, memory, overlap, load)
        self._plans: dict[int, DevicePlan] = {}

    def plan(self, share: int) -> DevicePlan:
        """What the device would do with `share` units, 1 or more."""
        if share not in self._plans:
            self._plans[share] = even_plan(share, self._model, self._memory, self._overlap)
        return self._plans[share]

    def total(self, near: int | None = None) -> PiecewiseLinear:
        """Seconds as a function of the share; `near`: a share for which it is made exact.

        Scaled by how much longer or shorter the latest shares took than it says.
        """
        curve = self._estimated
        if near is not None:
            seconds = timeline(self.plan(near), self._model, self._overlap).makespan
            curve = scaled(curve, seconds / curve.time(near))
        return scaled(curve, correction(self._model, curve))


def planned_total(
    model: DeviceModel, memory: MemoryDemand, overlap: Overlap, load: int
) -> PiecewiseLinear:
    """`Planned.total` for shares of `load`, nowhere made exact. Parameters as for `Planned`."""
    return Planned(model, memory, overlap, load).total()
