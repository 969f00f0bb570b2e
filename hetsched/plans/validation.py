"""What every planner is given: checked once, where it comes in, never in its loops."""

from __future__ import annotations

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.partition.distribution import whole_units
from hetsched.plans.device_plan import Overlap, of_kind


def request(share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap) -> int:
    """The share as an int.

    Raises
    ------
    UsageError
        It is negative or no whole number; another parameter isn't of its kind.
    """
    of_kind("model", model, DeviceModel)
    of_kind("overlap", overlap, Overlap)
    return load(share, memory)


def load(share: int, memory: MemoryDemand) -> int:
    """`request` where no model is needed."""
    of_kind("memory", memory, MemoryDemand)
    return whole_units("share", share)
