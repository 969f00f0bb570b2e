"""Sizes of arrays as one parameter, "4096x512": parsed, and found from an input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hetsched.errors import DataError, UsageError
from hetsched.units import parse_extent, quoted
from hetsched.workload import BaseWorkload, DtypeChoice, convert

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Input -> its shape and stored dtype."""
COUNTS = {1: "one", 2: "two", 3: "three", 4: "four"}


def parse(text: str, forms: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """Return the sizes in `text`, named as in the form with as many axes. Raises UsageError."""
    for names in forms:
        if len(forms) == 1 or len(names) == text.count("x") + 1:
            return parse_extent(text, names)
    raise UsageError(f"{quoted(text)}: needs {described(forms)}; example: 256x512")


def described(forms: Sequence[tuple[str, ...]]) -> str:
    return " or ".join("x".join(names) for names in forms)


class WithExtent(BaseWorkload):
    """A workload with its sizes in one parameter, `extent`, which the first input has, too."""

    extent: str
    dtypes: DtypeChoice

    @abstractmethod
    def forms(self, explicit: Mapping[str, Any]) -> Sequence[tuple[str, ...]]:
        """Return the names of the axes, ("ROWS", "COLS"), for each number of axes."""

    def infer(self, explicit: Mapping[str, Any], arrays: Shapes) -> Any:
        full = {key: value for key, value in explicit.items() if value is not None}
        if "dtype" in full:
            full["dtype"] = self.dtypes.parse(self.name, full["dtype"]).name
        array, forms, given = self.inputs[0], self.forms(explicit), full.get(self.extent)
        if array in arrays:
            shape, dtype = arrays[array]
            holds, text = f"{array} holds {dtype} of shape {shape}", "x".join(map(str, shape))
            fitting = self.dtypes.fitting(dtype)
            if fitting is None:
                takes = self.dtypes.description
                raise DataError(f"{holds}; {self.name} computes in {takes}")
            if len(shape) not in map(len, forms):
                counts = " or ".join(COUNTS[len(names)] for names in forms)
                raise DataError(f"{holds}; {self.name} needs {counts} axes, {described(forms)}")
            if min(shape) < 1:
                raise DataError(f"{holds}: it is empty; nothing to compute")
            if given and parse(str(given), forms) != shape:
                way_out = f"give {text}, or leave it out"
                raise DataError(f"{holds}, but {self.extent} is {given}; {way_out}")
            full = {"dtype": fitting.name, **full, self.extent: text}
        elif not given:
            wanted = f"{self.extent}, {described(forms)}, or an input array"
            raise UsageError(f"{self.name} needs a {wanted}")
        params = convert(self, full)
        self.load(params)
        return params

    def resized(self, p: Any, load: int) -> Any:
        sizes = getattr(p, self.extent).split("x")[1:]
        return msgspec.structs.replace(p, **{self.extent: "x".join([str(load), *sizes])})
