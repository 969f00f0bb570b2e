"""Diffusion of heat; see `declaration`."""

from hetsched_workloads.heat.declaration import Heat, HeatParams

__all__ = ["Heat", "HeatParams"]
