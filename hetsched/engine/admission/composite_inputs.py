"""Binding of inputs that users give as one object: a sparse matrix."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hetsched.engine.admission.input_opener import InputOpener
from hetsched.errors import DataError
from hetsched.job import FileRef, Generated, InputRef
from hetsched.transport.device_messages import StoredArray
from hetsched.workload import BaseWorkload, SparseMatrix


def composite_of(workload: BaseWorkload, name: str) -> SparseMatrix | None:
    """Return the composite that the input `name` is; "": the only one that is needed."""
    wanted = name or workload.only_input
    return next((c for c in workload.composites if c.name == wanted), None)


def open_composite(
    composite: SparseMatrix, name: str, reference: InputRef, opener: InputOpener
) -> Mapping[str, StoredArray]:
    """Open the input `name` and return its arrays; none if it is generated.

    Raises
    ------
    DataError, InputMissing, IOFailure, TryAgain
        It is no sparse matrix, or a file that can't be read.
    """
    if isinstance(reference, Generated):
        return {}
    if isinstance(reference, FileRef):
        arrays = opener.open_matrix(name, reference.path, composite)
        return {array.array: array for array in arrays}
    raise DataError(
        f"input {composite.name} is a sparse matrix, not one array: give a SciPy sparse array,"
        f" such as scipy.sparse.csr_array({composite.name})"
    )


def check_composites(workload: BaseWorkload, opened: Mapping[str, StoredArray]) -> None:
    """Check that the arrays of each composite are complete and have its shapes.

    Raises
    ------
    UsageError, DataError
    """
    for composite in workload.composites:
        shapes = {
            name: (opened[name].shape, np.dtype(opened[name].dtype).name)
            for name in composite.arrays
            if name in opened
        }
        composite.check(shapes)
