"""A x = b by Jacobi's method; see `declaration`."""

from hetsched_workloads.jacobi.declaration import Jacobi, JacobiParams

__all__ = ["Jacobi", "JacobiParams"]
