"""C := C + A B; see `declaration`."""

from hetsched_workloads.matrix_update.declaration import MatrixParams, MatrixUpdate

__all__ = ["MatrixParams", "MatrixUpdate"]
