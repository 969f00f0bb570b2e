"""Plug-ins that return what they must not, or raise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from toys import WIDTH, Toy, ToyParams, make_toy

from hetsched.errors import DataError
from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Variant

SURROGATE = "\ud800"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no representation")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class LoadIsTrue(Toy):
    def load(self, p: Any) -> int:
        return True


class LoadIsUnprintable(Toy):
    def load(self, p: Any) -> Any:
        return Unprintable()


class LoadIsHuge(Toy):
    def load(self, p: Any) -> int:
        return 1 << 80


class LoadRaises(Toy):
    def load(self, p: Any) -> int:
        raise UnprintableError


class LoadExits(Toy):
    def load(self, p: Any) -> int:
        raise SystemExit(3)


class DemandIsInfinite(Toy):
    def demand(self, p: Any, kind: str) -> MemoryDemand:
        return MemoryDemand(input_bytes=math.inf, work_bytes=0, output_bytes=8)


class DemandIsUnprintable(Toy):
    def demand(self, p: Any, kind: str) -> Any:
        return Unprintable()


class KeyIsNoText(Toy):
    def speed_key(self, p: Any) -> Any:
        return Unprintable()


class KeyIsSurrogate(Toy):
    def speed_key(self, p: Any) -> str:
        return SURROGATE


class KeyIsHuge(Toy):
    def speed_key(self, p: Any) -> str:
        return "k" * 10_000_000


class ResidualIsShort(Toy):
    def residual(self, *_: Any) -> np.ndarray:
        return np.zeros(1)


class ToleranceIsNan(Toy):
    def tolerance(self, p: Any) -> float:
        return math.nan


class KeyExits(Toy):
    def speed_key(self, p: Any) -> str:
        raise SystemExit(3)


class ArrayIsSurrogate(Toy):
    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (WIDTH,), p.dtype),
            ArraySpec(SURROGATE, "out", (4,), "f8"),
        )


class ParamsAreSurrogate(Toy):
    def infer(self, explicit: Mapping[str, Any], arrays: Any) -> Any:
        return ToyParams(name=SURROGATE)


class ArrayIsRecord(Toy):
    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        return (
            ArraySpec("x", "split", (WIDTH,), p.dtype),
            ArraySpec("y", "out", (4,), [("a", "f8")]),  # type: ignore[arg-type]
        )

    def speed_key(self, p: Any) -> str:
        return ""


class NameIsNumPys(Toy):
    name = np.str_("numpys_name")


class ExitingError(DataError):
    """Of our tree, so it is passed on; but who reports it must not exit."""

    def __str__(self) -> str:
        raise SystemExit(3)


class ErrorExits(Toy):
    def infer(self, explicit: Mapping[str, Any], arrays: Any) -> Any:
        raise ExitingError


class ErrorHasUnprintable(Toy):
    def load(self, p: Any) -> int:
        raise DataError(Unprintable())


class ErrorIsSurrogate(Toy):
    def infer(self, explicit: Mapping[str, Any], arrays: Any) -> Any:
        raise ValueError(f"never seen: {SURROGATE}")


class VariantsRaise(Toy):
    def variants(self, kind: str) -> Sequence[Variant]:
        raise LookupError("no library")


class KernelFails(Toy):
    name = "kernel_fails"

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant("numpy", "1", make)]


class NumPyToy(Toy):
    """Not wrong: NumPy's integers are whole numbers, and its text is text."""

    name = "numpy_toy"

    def load(self, p: Any) -> Any:
        return np.int64(p.units)

    def speed_key(self, p: Any) -> Any:
        return np.str_("key")

    def arrays(self, p: Any) -> Sequence[ArraySpec]:
        role: Any = np.str_("out")
        return (
            ArraySpec(np.str_("x"), "split", (WIDTH,), p.dtype),
            ArraySpec(np.str_("y"), role, (WIDTH,), np.str_(p.dtype)),
        )

    def variants(self, kind: str) -> Sequence[Variant]:
        return [Variant(np.str_("numpy"), np.str_("1"), make_toy)]


def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
    def divide(inputs: Arrays, outputs: Arrays) -> None:
        raise ValueError(f"no such number {SURROGATE}")

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        divide(inputs, outputs)

    return kernel
