"""Validation of the parameters common to all planning functions."""

from __future__ import annotations

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.partition.distribution import whole_units
from hetsched.plans.device_plan import Overlap, require_type


def validate_request(
    share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
) -> int:
    """Return the share as an int.

    Raises
    ------
    UsageError
        The share is negative or not an integer; another parameter has the wrong type.
    """
    require_type("model", model, DeviceModel)
    require_type("overlap", overlap, Overlap)
    return validate_share(share, memory)


def validate_share(share: int, memory: MemoryDemand) -> int:
    """Validate like `validate_request`, for functions without a model."""
    require_type("memory", memory, MemoryDemand)
    return whole_units("share", share)
