"""The names of a sparse matrix's arrays."""

PARTS = ("data", "indices", "indptr")
"""The arrays of compressed sparse rows; SciPy's names."""


def part_name(name: str, part: str) -> str:
    """Return the name of one array of the input `name`: "A.data"."""
    return f"{name}.{part}"
