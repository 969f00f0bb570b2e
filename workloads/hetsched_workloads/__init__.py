"""The shipped workloads, plug-ins like anybody's."""

from hetsched.workload import FLOAT32, FLOAT64, DtypeChoice

DTYPES = DtypeChoice(FLOAT32, FLOAT64)
"""Of workloads that compute with real numbers."""
