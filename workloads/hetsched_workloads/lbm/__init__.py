"""Lattice Boltzmann flow; see `declaration`."""

from hetsched_workloads.lbm.declaration import Lbm, LbmParams

__all__ = ["Lbm", "LbmParams"]
