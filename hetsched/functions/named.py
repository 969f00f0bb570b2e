"""Functions that are given as ``module:qualname``, and the workload that maps one in a daemon.

Neither code nor data is sent: device processes import the function, and read its blocks from the
files themselves, so that every format, axis and overlap of `map` will do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hetsched.errors import DataError, HetschedError, plug_in_error
from hetsched.functions.function import current_function, find_function, identity
from hetsched.functions.map import make_call
from hetsched.memory import MemoryDemand
from hetsched.paths import split_path
from hetsched.workload import Arrays, ArraySpec, Variant, Workload
from hetsched.workload.protocol import array_bytes


class Mapped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `hetsched submit map` asks for; its options are those of `hetsched.map`."""

    function: str
    inputs: tuple[str, ...]
    """Absolute paths."""
    folder: str
    """Where its module may be, besides sys.path."""
    code: str
    """Identity of the function."""
    load: int
    results: tuple[tuple[tuple[int, ...], str], ...]
    """Shape and dtype of a unit of each."""
    arguments: dict[str, Any] = {}
    axis: int = 0
    overlap: int = 0
    mode: str = "reflect"
    broadcast: tuple[int, ...] = ()
    dtype: str | None = None


def function_error(name: str, error: BaseException) -> HetschedError:
    """Return what a function has raised as the error of a job, with the units that it was for."""
    where = next((n for n in getattr(error, "__notes__", ()) if n.startswith("hetsched: ")), "")
    return plug_in_error(where.removeprefix("hetsched: ") or name, error)


def mapped(
    name: str, inputs: Sequence[str], folder: str, arguments: dict[str, Any], **options: Any
) -> Mapped:
    """Return the parameters of a job: the first unit is computed here, to see what comes out.

    Raises UsageError, DataError, InputMissing; JobFailed if the function has raised an error.
    """
    function = find_function(name, folder)
    with contextlib.ExitStack() as files:
        call = make_call(function, inputs, arguments, files, **options)
        if not call.load:
            raise DataError("the inputs have no units: there is nothing to compute")
        try:
            returned = call.apply([x[0:1] for x in call.split], call.whole, 0, None)
            layouts = call.layouts(call.results(returned, 1))
        except Exception as error:
            call.fail(error, 0, 1)
            raise function_error(name, error) from error
        return Mapped(
            function=name,
            inputs=tuple(inputs),
            folder=folder,
            code=identity(call.f, arguments),
            load=call.load,
            results=tuple((layout.shape, layout.dtype) for layout in layouts),
            arguments=arguments,
            **{**options, "axis": call.axis},
        )


class Map(Workload):
    """Applies a function to blocks of the arrays in files."""

    name = "map"
    Params = Mapped
    inputs = ()
    writes_all = True

    def load(self, p: Mapped) -> int:
        return p.load

    def infer(
        self, explicit: Mapping[str, Any], arrays: Mapping[str, tuple[tuple[int, ...], str]]
    ) -> Mapped:
        return msgspec.convert(dict(explicit), Mapped)

    def arrays(self, p: Mapped) -> Sequence[ArraySpec]:
        names = ["y"] if len(p.results) == 1 else [f"y{i}" for i in range(len(p.results))]
        return [
            ArraySpec(name, "out", *unit, axis=p.axis)
            for name, unit in zip(names, p.results, strict=True)
        ]

    def paths(self, p: Mapped) -> Sequence[str]:
        return [split_path(path).file for path in p.inputs]

    def demand(self, p: Mapped, kind: str) -> MemoryDemand:
        output = sum(array_bytes(a) for a in self.arrays(p))
        return MemoryDemand(input_bytes=0, work_bytes=2 * output, output_bytes=output)

    def speed_key(self, p: Mapped) -> str:
        return f"{p.function} {p.code} {p.axis} {p.overlap} {super().speed_key(p)}"

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("function", "1", lambda p, *_: _Blocks(p)),) if kind == "cpu" else ()


class _Blocks:
    takes_range = True

    def __init__(self, p: Mapped) -> None:
        names = ("axis", "overlap", "mode", "broadcast", "dtype")
        options = {name: getattr(p, name) for name in names}
        function = current_function(p.function, p.code, p.arguments, p.folder)
        self._name = p.function
        self._files = contextlib.ExitStack()
        self._call = make_call(function, p.inputs, p.arguments, self._files, **options)
        if self._call.load != p.load:
            raise DataError(f"the inputs have {self._call.load} units by now; {p.load} before")

    def __call__(self, inputs: Arrays, outputs: Arrays, first: int, count: int) -> None:
        call = self._call
        try:
            call.compute(call.split, call.whole, [*outputs.values()], first, count, first)
        except Exception as error:
            call.failure = None
            raise function_error(self._name, error) from error
