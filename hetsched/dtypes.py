"""The floating-point dtypes that workloads compute in. Without NumPy, for the command line.

A workload states its dtypes once, as a `DtypeChoice`; item sizes, aliases, help and the dtype that
fits a stored array follow from it.
"""

from __future__ import annotations

import msgspec

from hetsched.errors import UsageError
from hetsched.units import closest_name, quoted

NUMERIC = "biufc"
"""NumPy's letters of the kinds of dtype that jobs take: they convert to what kernels expect."""
_CODES = {
    "c8": "complex64",
    "c16": "complex128",
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "i1": "int8",
    "i2": "int16",
    "i4": "int32",
    "i8": "int64",
    "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32",
    "u8": "uint64",
    "b1": "bool",
}
"""NumPy's array-protocol codes -> names."""

_FITS_SINGLE = frozenset({"bool", "int8", "int16", "uint8", "uint16", "float16", "float32"})
_FITS_DOUBLE = frozenset({"int32", "int64", "uint32", "uint64", "float64"})
"""Stored dtypes whose values are exact in that precision (integers above 2**53 aside)."""


class Dtype(msgspec.Struct, frozen=True):
    """A floating-point dtype."""

    name: str  # "complex64"
    alias: str  # "c64"
    real: str  # The dtype of its real and imaginary parts; its own name if it is real
    item_bytes: int
    is_double: bool


FLOAT32 = Dtype("float32", "f32", "float32", 4, False)
FLOAT64 = Dtype("float64", "f64", "float64", 8, True)
COMPLEX64 = Dtype("complex64", "c64", "float32", 8, False)
COMPLEX128 = Dtype("complex128", "c128", "float64", 16, True)


class DtypeChoice(msgspec.Struct, frozen=True):
    """The dtypes of a workload: one in single and one in double precision."""

    single: Dtype
    double: Dtype

    @property
    def description(self) -> str:
        """Return the choices, for the help of a flag: "complex64 or complex128 (c64, c128)"."""
        single, double = self.single, self.double
        return f"{single.name} or {double.name} ({single.alias}, {double.alias})"

    def __getitem__(self, name: str) -> Dtype:
        for dtype in (self.single, self.double):
            if dtype.name == name:
                return dtype
        raise KeyError(name)

    def parse(self, workload: str, text: object) -> Dtype:
        """Return the dtype with the name or alias `text`. Raises UsageError."""
        dtypes = (self.single, self.double)
        names = {word: dtype for dtype in dtypes for word in (dtype.name, dtype.alias)}
        if isinstance(text, str) and text in names:
            return names[text]
        closest = closest_name(str(text).lower(), names)
        hint = f"choose from: {self.single.name}, {self.double.name}"
        hint = f"did you mean {names[closest].name}?" if closest else hint
        raise UsageError(f"{workload} has no dtype {quoted(text)}; {hint}")

    def fitting(self, stored: str) -> Dtype | None:
        """Return the dtype that holds all values of a stored dtype; None if neither does.

        `stored`: a name, or an array-protocol code with byte order, as ">f8".
        """
        code = stored.lstrip("<>=|")
        name = _CODES.get(code, code)
        if name in _FITS_SINGLE or name == self.single.name:
            return self.single
        if name in _FITS_DOUBLE or name == self.double.name:
            return self.double
        return None
