"""The workload behind `map` and `reduce`: it calls the caller's function, in the caller's process.

A job names its `Call` by number, in an array. So calls of one function have equal parameters, and
share plans and measurements.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hetsched.errors import JobFailed
from hetsched.memory import MemoryDemand
from hetsched.workload import Arrays, ArraySpec, KernelContext, Variant, Workload

if TYPE_CHECKING:
    from hetsched.functions.call import Call

CALL = "call"
"""The input with the number of the call."""
MAX_ARRAYS = 32
"""Arrays that one call may have. Arbitrary."""


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """Shape and dtype of a unit of an array; of a whole array that each block gets."""

    shape: tuple[int, ...]
    dtype: str


def unit_layout(array: Any) -> Layout:
    return Layout(array.shape[1:], array.dtype.name)


class FunctionParams(msgspec.Struct, frozen=True, kw_only=True):
    load: int
    function: str
    split: tuple[Layout, ...]
    whole: tuple[Layout, ...] = ()
    outputs: tuple[Layout, ...] = ()
    work: int = 0
    """Bytes that a unit takes, its result included, as measured; 0: few."""


class Function(Workload):
    name = "map"
    Params: type[FunctionParams] = FunctionParams

    def __init__(self, *kinds: str) -> None:
        """`kinds`: of GPUs that its functions have twins for."""
        self._kinds = ("cpu", *kinds)

    in_threads: Literal["no", "only"] = "only"  # functions aren't sent anywhere
    takes_any_layout = True
    writes_all = True
    inputs = (CALL, *(f"{kind}{number}" for kind in "xw" for number in range(MAX_ARRAYS)))

    def load(self, p: FunctionParams) -> int:
        return p.load

    def infer(
        self, explicit: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> FunctionParams:
        return msgspec.convert(dict(explicit), self.Params)

    def arrays(self, p: FunctionParams) -> Sequence[ArraySpec]:
        return [
            *(ArraySpec(f"x{i}", "split", x.shape, x.dtype) for i, x in enumerate(p.split)),
            *(ArraySpec(f"w{i}", "resident", w.shape, w.dtype) for i, w in enumerate(p.whole)),
            ArraySpec(CALL, "resident", (1,), "int64"),
            *(ArraySpec(f"y{i}", "out", y.shape, y.dtype) for i, y in enumerate(p.outputs)),
        ]

    def demand(self, p: FunctionParams, kind: str) -> MemoryDemand:
        demand = super().demand(p, kind)
        assert isinstance(demand.work_bytes, int)
        return dataclasses.replace(demand, work_bytes=max(demand.work_bytes, p.work))

    def speed_key(self, p: FunctionParams) -> str:
        layouts = (f"{'x'.join(map(str, a.shape))}:{a.dtype}" for a in (*p.split, *p.whole))
        return " ".join([p.function, *layouts])

    def variants(self, kind: str) -> Sequence[Variant]:
        if kind not in self._kinds:
            return ()
        return (Variant("function", "1", lambda p, _, context: _FunctionKernel(p, context)),)


CORES, CUDA, OPENCL = Function(), Function("cuda"), Function("opencl")
CUDA_OPENCL = Function("cuda", "opencl")


def reference(kinds: Iterable[str]) -> str:
    return f"{__name__}:{'_'.join(sorted(kinds)).upper() or 'CORES'}"


class _FunctionKernel:
    takes_range = True

    def __init__(self, p: FunctionParams, context: KernelContext) -> None:
        self._kind, self._xp = context.kind, context.xp
        self._last: tuple[weakref.ref[Any], int] | None = None
        self._split = [f"x{i}" for i in range(len(p.split))]
        self._whole = [f"w{i}" for i in range(len(p.whole))]
        self._outputs = [f"y{i}" for i in range(len(p.outputs))]

    def __call__(self, inputs: Arrays, outputs: Arrays, first: int, count: int) -> None:
        call = _calls[self._number(inputs[CALL])]
        split = [inputs[name] for name in self._split]
        whole = [inputs[name] for name in self._whole]
        written = [outputs[name] for name in self._outputs]
        if self._kind != "cpu":
            call.in_context(
                call.compute_by_twin, self._kind, split, whole, written, first, self._xp
            )
            return
        with contextlib.suppress(BaseException):  # the caller raises it: the call knows it
            call.in_context(call.compute_chunk, split, whole, written, first, count)
            return
        raise JobFailed("the function has raised an error")

    def _number(self, array: Any) -> int:
        """Return the number of the call; from a GPU it is read once for a job: that waits."""
        if self._kind == "cpu":
            return int(array[0])
        if self._last is None or self._last[0]() is not array:
            self._last = weakref.ref(array), int(array.get()[0])
        return self._last[1]


_calls: dict[int, Call] = {}
_numbers = itertools.count(1)


@contextlib.contextmanager
def registered(call: Call) -> Iterator[int]:
    number = next(_numbers)
    _calls[number] = call
    try:
        yield number
    finally:
        del _calls[number]
