"""The kernels of a diffusion but for the step itself, on any array module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hetsched.errors import DataError
from hetsched.workload import Arrays, Rows, StageKernel, Values
from hetsched_workloads.heat.declaration import HeatParams

Step = Callable[[Any, Any], float]
"""step(u with a halo of one row, new values) -> the largest change; 0 without a tolerance."""
Load = Callable[[Any, Any], bool]
"""load(initial values, u) copies them and returns whether all are finite."""


def stages(p: HeatParams, xp: Any, step: Step, load_rows: Load) -> Mapping[str, StageKernel]:
    """Return the kernels by stage."""

    def load(
        rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        initial = inputs["initial"]
        if not load_rows(initial, outputs["u"]):
            line = xp.isfinite(initial.reshape(rows.count, -1)).all(axis=1)
            row = rows.first + int(line.argmin())
            raise DataError(f"initial: row {row} has a NaN or an infinite value")
        partials["steps"][...] = 0

    def advance(
        rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        change = step(inputs["u"], outputs["u"])
        partials["steps"][...] = values.before["steps"] + 1
        if p.tolerance > 0:
            partials["change"][...] = change

    def result(
        rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        outputs["final"][...] = inputs["u"][1:-1]
        if rows.is_first:
            outputs["steps"][...] = int(values.now["steps"])

    return {"load": load, "step": advance, "result": result}
