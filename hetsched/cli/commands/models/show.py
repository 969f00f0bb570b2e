"""`hetsched models show WORKLOAD`: every size that was measured, and a picture of the curves."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hetsched import paths
from hetsched.cli.commands.models.labels import of, percent
from hetsched.cli.commands.models.selection import Device, Workload, check_workload, chosen
from hetsched.cli.output.terminal import clean, columns, note, number, out, out_json
from hetsched.cli.request_flags import Force, Json
from hetsched.errors import InputMissing, UsageError
from hetsched.units import counted, format_seconds

SCHEMA = "hetsched.models.show/2"
CURVES = ("total", "compute", "h2d", "d2h")
HEADER = ("curve", "units", "seconds", "units/s", "within", "times")


def command(
    workload: Workload,
    device: Device = None,
    work: Annotated[
        str | None, typer.Option("--of", metavar="TEXT", help="Only what is `of` this: 512x512.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw the curves, as .png, .svg or .pdf.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Show what is known of a workload, size by size, with its confidence intervals."""
    from hetsched.store.catalogue import collect

    known = collect(paths.models_path()).models
    check_workload(workload, known)
    models = chosen(known, workload, device)
    if not models:
        raise InputMissing(
            f"nothing learnt of {workload} yet; hetsched models measure {workload} measures it,"
            " every run teaches something"
        )
    if work is not None:
        models = of_work(models, work)
    if plot is not None:
        from hetsched.cli.commands.models.picture import draw

        draw(workload, models, plot, force)
        note(f"drawn: {plot}")
    if json:
        entries = [entry(one) for one in models]
        out_json({"schema": SCHEMA, "workload": workload, "models": entries})
        return
    for one in models:
        for line in _lines(one):
            out(clean(line))


def of_work(models: list[Any], text: str) -> list[Any]:
    """Those whose parameters, as they are shown, contain `text`. Raises UsageError if none do."""
    found = [one for one in models if text in of(one.speed_key)]
    if not found:
        there = "; ".join(sorted({of(one.speed_key) for one in models}))
        raise UsageError(f"--of {text}: nothing of that is known, only of {there}")
    return found


def entry(learnt: Any) -> dict[str, Any]:
    """One model as JSON. An end of an interval that isn't known is null."""
    key = learnt.key
    return {
        **{name: getattr(key, name) for name in key.__struct_fields__},
        "runs": learnt.runs,
        "curves": {name: curve for name in CURVES if (curve := _curve(learnt, name))},
    }


def _curve(learnt: Any, name: str) -> dict[str, Any] | None:
    knots = learnt.knots(name)
    if not knots:
        return None
    return {**_line(learnt, name), "knots": [_knot(one) for one in knots]}


def _line(learnt: Any, name: str) -> dict[str, float]:
    """Gap (s) and slope (s/unit) of a curve that is a line: the phases of a device with a link."""
    curve = getattr(learnt.history().model(), name, None)
    gap, slope = getattr(curve, "gap", None), getattr(curve, "slope", None)
    return {} if gap is None or slope is None else {"gap": gap, "slope": slope}


def _knot(one: Any) -> dict[str, Any]:
    return {
        "units": one.units,
        "seconds": one.seconds,
        "count": one.count,
        "low": one.low,
        "high": one.high,
    }


def _lines(learnt: Any) -> list[str]:
    key = learnt.key
    runs = counted(learnt.runs, "run")
    title = f"{key.device}, {key.variant} {key.version}, {key.storage}: {runs}"
    lines = [f"{key.workload} {of(key.speed_key)}", title]
    rows = [
        (
            name,
            number(one.units),
            f"{one.seconds:.4g}",
            number(one.units / one.seconds),
            percent(one.half_width),
            str(one.count),
        )
        for name in CURVES
        for one in learnt.knots(name)
    ]
    lines += [f"  {line}" for line in columns(HEADER, rows)]
    for name in CURVES:
        line = _line(learnt, name)
        if line:
            gap, slope = format_seconds(line["gap"]), format_seconds(line["slope"])
            lines.append(f"  {name}: {gap} an operation, {slope} a unit")
    return [*lines, ""]
