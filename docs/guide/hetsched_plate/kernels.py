"""The kernels: one function for each stage, for any part of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetsched.workload import StageCall, StageKernel


def make(xp: Any) -> Mapping[str, StageKernel]:
    """Return the kernels for the array module `xp`."""

    def begin(call: StageCall) -> None:
        call.outputs["u"][...] = call.inputs["x"]

    def relax(call: StageCall) -> None:
        rows, u, new = call.rows, call.inputs["u"], call.outputs["u"]
        old = u[1:-1]  # own rows; the first and the last row of `u` are the halo
        new[...] = old
        first, stop = int(rows.is_first), rows.count - int(rows.is_last)
        inner = new[first:stop, 1:-1]
        xp.add(u[first:stop, 1:-1], u[first + 2 : stop + 2, 1:-1], out=inner)
        inner += old[first:stop, :-2]
        inner += old[first:stop, 2:]
        inner *= 0.25
        call.partials["change"][...] = xp.abs(new - old).max()

    def end(call: StageCall) -> None:
        call.outputs["y"][...] = call.inputs["u"][1:-1]

    return {"begin": begin, "relax": relax, "end": end}
