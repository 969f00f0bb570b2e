"""Devices and helpers of the planner's tests."""

from hetsched.device import DeviceInfo
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.records import Candidate, JobPlan
from hetsched.plans import MemoryDemand

PLANE = 2 << 20
MIB = 1 << 20


def demand(limit: int | None = None, plane: int = PLANE) -> MemoryDemand:
    return MemoryDemand(input_bytes=plane, work_bytes=0, output_bytes=plane, limit=limit)


def core(index: int = 0, seconds: float | None = None, name: str = "cpu") -> Candidate:
    """A device without a link whose one variant takes `seconds` per unit; None: no model."""
    curve = None if seconds is None else PiecewiseLinear([(100, 100 * seconds)] * 5)
    kind = "cpu" if name == "cpu" else "emulated"
    info = DeviceInfo(name=f"{name}{index}", kind=kind, identity="x")
    model = None if curve is None else DeviceModel(curve, curve)
    return Candidate(info, demand(), {"fft": model}, {"fft": 3})


def gpu(
    model: DeviceModel | None = None, memory: int = 64 * MIB, plane: int = PLANE, engines: int = 2
) -> Candidate:
    info = DeviceInfo(
        name="gpu0", kind="cuda", identity="g", link=True, memory=memory, engines=engines
    )
    return Candidate(info, demand(memory, plane), {"cufft": model}, {"cufft": 0})


FAST = DeviceModel(
    PiecewiseLinear(), Affine(3e-5, 1e-4), Affine(1e-5, PLANE / 6e9), Affine(1e-5, PLANE / 6.5e9)
)


def shares(plan: JobPlan) -> dict[str, int]:
    return {a.device: a.plan.share for a in plan.assignments}


def units(plan: JobPlan) -> list[int]:
    chunks = [chunk for a in plan.assignments for chunk in a.chunks]
    return [unit for c in chunks for unit in range(c.first, c.first + c.count)]
