"""Names of stored dtypes, without NumPy."""

from __future__ import annotations

CODES = {"c8": "complex64", "c16": "complex128", "f2": "float16", "f4": "float32",
         "f8": "float64", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
         "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64", "b1": "bool"}  # fmt: skip


def array_name(dtype: str) -> str:
    """NumPy's name for a dtype given by name or by code with byte order: ">f8" is "float64"."""
    code = dtype.lstrip("<>=|")
    return CODES.get(code, code)
