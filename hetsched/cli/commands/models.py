"""`hetsched models`: the measured speed functions of this machine. No daemon needed.

Without a subcommand, or with the name of a workload, the command lists.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from hetsched import paths
from hetsched import workload as workloads
from hetsched.cli.app import Group, group
from hetsched.cli.flags import Force, Json, Plot, argument, option, switch
from hetsched.cli.terminal import (
    answer,
    check_plot,
    note,
    out_lines,
    picture_format,
    width,
    write_file,
)
from hetsched.errors import DataError, InputMissing, UsageError
from hetsched.text import clean_json, columns, folded, number, short_device, work_label
from hetsched.units import closest_hint, counted, format_seconds

if TYPE_CHECKING:
    from typer._click import Context

    from hetsched.models import Knot
    from hetsched.store.model_store import Export, ModelKey, StoredModel, StoredRaces

STANDARD = "-"  # File name that stands for standard input or output
MAX_BYTES = 256 << 20
"""Largest export, enough for thousands of models. A larger file isn't one and is refused."""
MIN_SIMILARITY = 0.7
"""Similarity (difflib's) above which a word is a mistyped subcommand rather than a workload."""

Device = Annotated[str | None, option("NAME", "Only this device or group: cpu0, cpu.")]
WorkloadName = Annotated[str | None, argument("[WORKLOAD]", "Only models of this workload.")]


# ---- what all have in common


def percent(fraction: float | None) -> str:
    """Format a confidence interval's half-width: "1.2 %"; "-" if it says nothing."""
    if fraction is None or not fraction < 1:
        return "-"
    return f"{100 * fraction:.1f} %"


def knot_record(knot: Knot) -> dict[str, float]:
    """Return the evidence at one size as JSON; infinite ends of the interval are null."""
    return {name: getattr(knot, name) for name in ("units", "seconds", "count", "low", "high")}


def _matches(device: str, word: str) -> bool:
    """Whether `word` is a model's device, its short name, or its group."""
    name = short_device(device)
    return word in (device, name, name.rstrip("0123456789"))


def _collect() -> Export:
    from hetsched.store.model_store import collect  # it needs NumPy; the help doesn't

    return collect(paths.models_path())


def _check_workload(name: str | None, models: Sequence[StoredModel]) -> None:
    known = {model.workload for model in models}
    if name is not None and name not in known and ":" not in name:
        known.update(workloads.names())
        if name not in known:
            raise UsageError(f"no workload {name!r}{closest_hint(name, sorted(known))}")


def _select(
    models: Sequence[StoredModel], workload: str | None, device: str | None
) -> list[StoredModel]:
    """Return the models of `workload` and of `device` (None: any).

    Raises UsageError (no such workload, or it has models, but none of this device).
    """
    _check_workload(workload, models)
    found = [model for model in models if workload in (None, model.workload)]
    if device is None or not found:
        return found
    names = list(dict.fromkeys(short_device(model.device) for model in found))
    found = [model for model in found if _matches(model.device, device)]
    if not found:
        raise UsageError(f"no model of a device {device!r}{closest_hint(device, names)}")
    return found


# ---- list and show


def list_models(workload: WorkloadName = None, device: Device = None, json: Json = False) -> None:
    models = _select(_collect().models, workload, device)
    summaries = [summary for model in models if (summary := _summary(model)) is not None]
    subject = "" if workload is None else f" of {workload!r}"
    nothing = f"no models{subject} yet; try: hetsched run fft --batch 64x512x512"
    lines = _summary_lines(summaries) if summaries else [nothing]
    answer(json, "models/2", {"models": summaries}, lines)


def _summary_lines(summaries: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a heading, and a row for each model below the line of its parameters."""
    cells = []
    for each in summaries:
        units, seconds = each["points"][-1]
        names = (f"  {short_device(each['device'])}", f"{each['variant']} {each['version']}")
        speed = (number(units), number(units / seconds), percent(each["within"]))
        cells.append((*names, each["storage"], each["co_runners"], str(each["runs"]), *speed))
    header = ("device", "variant", "storage", "beside", "runs", "units", "units/s", "within")
    heading, *rows = columns(header, cells, 4)
    yield heading
    title = ""
    for summary, row in zip(summaries, rows, strict=True):
        if title != (title := f"{summary['workload']} {work_label(summary['speed_key'])}:"):
            yield from folded(title, width() or len(title))
        yield row


def _summary(model: StoredModel) -> dict[str, Any] | None:
    """Return one model as JSON, with (units, seconds) of its curve `total`; None without any."""
    speeds = model.history().model()
    knots = model.knots("total")
    if speeds is None or not knots:
        return None
    points = [(float(u), float(s)) for u, s in getattr(speeds.total, "points", ())]
    more = {"runs": model.runs, "points": points, "within": knots[-1].half_width}
    return {**msgspec.structs.asdict(model.key), **more}


def show(
    workload: Annotated[str, argument("WORKLOAD", "The models' workload.")],
    device: Device = None,
    work: Annotated[
        str | None, option("TEXT", "Only parameters like 512x512.", None, "--of")
    ] = None,
    plot: Plot = None,
    force: Force = False,
    json: Json = False,
) -> None:
    export = _collect()
    models = _of_work(workload, _select(export.models, workload, device), work)
    races = [record for stored in export.races_of(models) if (record := race_record(stored))]
    if plot is not None:
        from hetsched.plots import plot_models

        check_plot(plot, force)
        write_file("plot", plot, plot_models(workload, models, picture_format(plot)), force)
    details = list(map(_details, models))
    lines = [line for pair in zip(models, details, strict=True) for line in _model_lines(*pair)]
    lines += [line for race in races for line in _race_lines(workload, race)]
    record = {"workload": workload, "models": details, "races": races}
    answer(json, "models.show/2", record, lines)


def _of_work(workload: str, models: list[StoredModel], work: str | None) -> list[StoredModel]:
    """Return the models of parameters that contain `work`. Raises InputMissing, UsageError."""
    if not models:
        raise InputMissing(
            f"no models of {workload} yet; run it, or measure it if it isn't iterative:"
            f" hetsched models measure {workload}"
        )
    chosen = [model for model in models if work is None or work in work_label(model.speed_key)]
    if not chosen:
        labels = "; ".join(sorted({work_label(model.speed_key) for model in models}))
        raise UsageError(f"--of {work}: no such models; choose from: {labels}")
    return chosen


def _details(model: StoredModel) -> dict[str, Any]:
    """Return one model as JSON; gap (s) and slope (s per unit) only for a straight line."""
    from hetsched.models.measuring import CURVES

    curves: dict[str, dict[str, Any]] = {}
    for name in CURVES:
        if knots := model.knots(name):
            curves[name] = {"knots": list(map(knot_record, knots))}
            curve = getattr(model.history().model(), name, None)
            gap, slope = getattr(curve, "gap", None), getattr(curve, "slope", None)
            if gap is not None and slope is not None:  # of phases of devices with a link
                curves[name] |= {"gap": gap, "slope": slope}
    return {**msgspec.structs.asdict(model.key), "runs": model.runs, "curves": curves}


def _model_lines(model: StoredModel, details: dict[str, Any]) -> list[str]:
    key = model.key
    beside = f"{key.co_runners} of its neighbours busy: {counted(model.runs, 'run')}"
    rows, lines = [], []
    for name, curve in details["curves"].items():
        for knot in model.knots(name):
            speed = (f"{knot.seconds:.4g}", number(knot.units / knot.seconds))
            within = percent(knot.half_width)
            rows.append((name, number(knot.units), *speed, within, str(knot.count)))
        if "gap" in curve:
            gap, slope = format_seconds(curve["gap"]), format_seconds(curve["slope"])
            lines.append(f"  {name}: {gap} per operation, {slope} per unit")
    header = ("curve", "units", "seconds", "units/s", "within", "times")
    return [
        f"{key.workload} {work_label(key.speed_key)}",
        f"{key.device}, {key.variant} {key.version}, {key.storage}, {beside}",
        *(f"  {row}" for row in columns(header, rows)),
        *lines,
        "",
    ]


def race_record(stored: StoredRaces) -> dict[str, Any] | None:
    """Return what the races of shares like the latest show, as JSON; None if nothing.

    A rival's `ratio` is its time over the fastest's, `low` and `high` the interval of 90 %.
    """
    from hetsched.planner.trials import is_open

    everything = stored.record()
    if not everything.races:
        return None
    units = everything.races[-1].units
    record = everything.similar(units)
    names = sorted(record.variants())
    fastest = record.fastest(names)
    if fastest is None:
        return None
    found = {name: record.compare(name, fastest) for name in names if name != fastest}
    behind = sorted((c.mean, name, c) for name, c in found.items() if c)
    rivals = [
        {
            "variant": name,
            "ratio": each.ratio,
            "low": math.exp(each.low) if math.isfinite(each.low) else None,
            "high": math.exp(each.high) if math.isfinite(each.high) else None,
            "races": each.races,
            "dropped": not is_open(each),
        }
        for _, name, each in behind
    ]
    about = {name: getattr(stored, name) for name in ("speed_key", "device", "storage")}
    return {**about, "units": units, "fastest": fastest, "rivals": rivals}


def _race_lines(workload: str, record: dict[str, Any]) -> list[str]:
    share = counted(round(record["units"]), "unit")
    lines = [
        f"{workload} {work_label(record['speed_key'])}",
        f"{record['device']}, {record['storage']}: races of variants at about {share} a core",
        f"  {record['fastest']}: the fastest",
    ]
    for rival in record["rivals"]:
        has_interval = rival["low"] is not None and rival["high"] is not None
        interval = f" ({rival['low']:.2f} to {rival['high']:.2f})" if has_interval else ""
        state = "dropped" if rival["dropped"] else "undecided"
        races = f"times as long in {counted(rival['races'], 'race')}, {state}"
        lines.append(f"  {rival['variant']}: {rival['ratio']:.2f}{interval} {races}")
    return [*lines, ""]


# ---- export, import and forget


def export_models(
    file: Annotated[str, argument("[FILE]", "Output file; - for standard output.")] = STANDARD,
    workload: Annotated[str | None, option("NAME", "Only models of this workload.")] = None,
    device: Device = None,
    force: Force = False,
) -> None:
    from hetsched.store import model_store

    export = _collect()
    models = tuple(_select(export.models, workload, device))
    chosen = msgspec.structs.replace(export, models=models, races=export.races_of(models))
    raw = model_store.encode(chosen)
    if file == STANDARD:
        out_lines(clean_json(raw.decode().rstrip("\n")).splitlines())
        return
    from hetsched.store.output_files import write_whole

    write_whole(file, raw, force)
    note(f"exported {counted(len(models), 'model')} to {file}")


def import_models(
    file: Annotated[str, argument("FILE", "Export; - for standard input.")], json: Json = False
) -> None:
    from hetsched.store import model_store

    if file == STANDARD:
        raw, name = sys.stdin.buffer.read(MAX_BYTES + 1), "standard input"
        if len(raw) > MAX_BYTES:
            raise DataError(f"{name}: more than {MAX_BYTES} bytes; not an export of models")
    else:
        from hetsched.store.formats import read_whole

        raw, name = read_whole(file, MAX_BYTES), file
    added = model_store.restore(paths.models_path(), model_store.decode(raw, name))
    new, grown, known = (added[name] for name in ("new", "extended", "unchanged"))
    text = f"imported {file}: {counted(new, 'new model')}, {grown} extended, {known} unchanged"
    record = {"file": file, "new": new, "grown": grown, "known": known}
    answer(json, "models.import/1", record, [text])


def forget(
    workload: WorkloadName = None,
    device: Device = None,
    variant: Annotated[str | None, option("NAME", "Only this variant, e.g. pyfftw.")] = None,
    everything: Annotated[bool, switch("All models.", "--all")] = False,
    json: Json = False,
) -> None:
    from hetsched.store import model_store

    has_filter = any(value is not None for value in (workload, device, variant))
    if everything == has_filter:
        raise UsageError("forget which models? Give WORKLOAD, --device or --variant; or --all")
    path = paths.models_path()
    if workload is not None:
        _check_workload(workload, _collect().models)

    def is_chosen(key: ModelKey) -> bool:
        is_device = device is None or _matches(key.device, device)
        return is_device and workload in (None, key.workload) and variant in (None, key.variant)

    forgotten = model_store.forget(path, is_chosen)
    text = f"forgot {counted(len(forgotten), 'model')}" if forgotten else "no such models"
    answer(json, "models.forget/1", {"forgotten": forgotten}, [text])


class ModelCommands(Group):
    """The subcommands; `list` is the default."""

    noun = "models command"
    members = {
        "list": (list_models, "List models with their speed at the largest size measured."),
        "show": (show, "Show every measured size with its confidence interval."),
        "measure": ("measure", "Measure a workload's speed at chosen sizes."),
        "export": (export_models, "Export all observations and races of variants as JSON."),
        "import": (import_models, "Add the observations of an export to the models."),
        "forget": (forget, "Delete models; later runs learn them again."),
    }

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        is_shell = not first and ctx.resilient_parsing  # which asks for the names
        similar = difflib.get_close_matches(first, [*self.names(), "--help"], 1, MIN_SIMILARITY)
        if not (similar or is_shell):
            args = ["list", *args]
        return super().parse_args(ctx, args)


models = group(ModelCommands, "[COMMAND] [FLAGS]...")
