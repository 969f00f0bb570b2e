"""The interface of plug-ins: what a workload declares, and the registry of workloads.

`Workload`: units that are independent of each other. `Iterative`: iterations, each of which
depends on the previous one, on data that stay where they are.
"""

from hetsched.dtypes import COMPLEX64, COMPLEX128, FLOAT32, FLOAT64, Dtype, DtypeChoice
from hetsched.sparse import SparseMatrix
from hetsched.workload.iterative import (
    Blocks,
    Border,
    Iterative,
    Reduction,
    RowCache,
    Rows,
    Stage,
    StageCall,
    StageKernel,
    StateArray,
    Values,
)
from hetsched.workload.protocol import (
    INFERRED,
    MAX_FLOAT,
    Arrays,
    ArraySpec,
    BaseWorkload,
    Kernel,
    KernelContext,
    Role,
    Tuning,
    Variant,
    Workload,
    convert,
    version,
)
from hetsched.workload.registry import find, locate, names

__all__ = [
    "COMPLEX64",
    "COMPLEX128",
    "FLOAT32",
    "FLOAT64",
    "INFERRED",
    "MAX_FLOAT",
    "ArraySpec",
    "Arrays",
    "BaseWorkload",
    "Blocks",
    "Border",
    "Dtype",
    "DtypeChoice",
    "Iterative",
    "Kernel",
    "KernelContext",
    "Reduction",
    "Role",
    "RowCache",
    "Rows",
    "SparseMatrix",
    "Stage",
    "StageCall",
    "StageKernel",
    "StateArray",
    "Tuning",
    "Values",
    "Variant",
    "Workload",
    "convert",
    "find",
    "locate",
    "names",
    "version",
]
