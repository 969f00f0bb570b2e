"""Plug-ins that return what they must not, or raise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from diffusing_workload import Diffusion
from toys import WIDTH, Toy, ToyParams, make_toy

from hetsched.errors import DataError
from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, Kernel, KernelContext, Stage, StateArray, Variant

SURROGATE = "\ud800"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no representation")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def returning(what: Any) -> Any:
    return lambda *_: what


def raising(error: type[BaseException], *arguments: Any) -> Any:
    def method(*_: Any) -> None:
        raise error(*arguments)

    return method


class ExitingError(DataError):
    """Of our tree, so it is passed on; but who reports it must not exit."""

    def __str__(self) -> str:
        raise SystemExit(3)


def toy(**wrong: Any) -> type[Toy]:
    return type("Wrong", (Toy,), wrong)


X = ArraySpec("x", "split", (WIDTH,), "float64")


def infinite(*_: Any) -> MemoryDemand:
    return MemoryDemand(input_bytes=math.inf, work_bytes=0, output_bytes=8)


RECORDS: Any = [("a", "f8")]

LoadIsTrue = toy(load=returning(True))
LoadIsUnprintable = toy(load=returning(Unprintable()))
LoadIsHuge = toy(load=returning(1 << 80))
LoadRaises = toy(load=raising(UnprintableError))
LoadExits = toy(load=raising(SystemExit, 3))
DemandIsInfinite = toy(demand=infinite)
DemandIsUnprintable = toy(demand=returning(Unprintable()))
KeyIsNoText = toy(speed_key=returning(Unprintable()))
KeyIsSurrogate = toy(speed_key=returning(SURROGATE))
KeyIsHuge = toy(speed_key=returning("k" * 10_000_000))
KeyExits = toy(speed_key=raising(SystemExit, 3))
ResidualIsShort = toy(residual=returning(np.zeros(1)))
ToleranceIsNan = toy(tolerance=returning(math.nan))
ArrayIsSurrogate = toy(arrays=returning((X, ArraySpec(SURROGATE, "out", (4,), "f8"))))
ArrayIsRecord = toy(
    arrays=returning((X, ArraySpec("y", "out", (4,), RECORDS))), speed_key=returning("")
)
ParamsAreSurrogate = toy(infer=returning(ToyParams(name=SURROGATE)))
NameIsNumPys = toy(name=np.str_("numpys_name"))
ErrorExits = toy(infer=raising(ExitingError))
ErrorHasUnprintable = toy(load=raising(DataError, Unprintable()))
ErrorIsSurrogate = toy(infer=raising(ValueError, f"never seen: {SURROGATE}"))
VariantsRaise = toy(variants=raising(LookupError, "no library"))


def diffusion(**wrong: Any) -> type[Diffusion]:
    return type("Wrong", (Diffusion,), wrong)


TWICE = [Stage(name, ("u",), reductions=("total",)) for name in ("first", "second")]
IsItsResult = diffusion(state=returning([StateArray("u", (5,), "float64", 1, result="y")]))
ArrayIsTwice = diffusion(arrays=returning((X, X)))
ArrayIsInOut = diffusion(arrays=returning((ArraySpec("z", "inout", (1,), "float64"),)))
ReductionIsTwice = diffusion(finish=returning(TWICE))
NoIterations = diffusion(max_iterations=returning(0))


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
