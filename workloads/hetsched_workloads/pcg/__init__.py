"""A x = b by the preconditioned conjugate gradient method; see `declaration`."""

from hetsched_workloads.pcg.declaration import Pcg, PcgParams

__all__ = ["Pcg", "PcgParams"]
