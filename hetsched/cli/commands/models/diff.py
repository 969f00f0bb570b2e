"""`hetsched models diff A B`: two exports, model by model."""

from __future__ import annotations

import statistics
from typing import Annotated, Any

import typer

from hetsched.cli.commands.models.labels import of
from hetsched.cli.output.terminal import columns, number, out, out_json
from hetsched.cli.request_flags import Json
from hetsched.errors import UsageError

SCHEMA = "hetsched.models.diff/2"
HEADER = (
    "workload", "of", "device", "variant", "storage", "what",
    "sizes", "B/A time", "least", "most",
)  # fmt: skip
A = Annotated[str, typer.Argument(metavar="A", help="An export; -: standard input.")]
B = Annotated[str, typer.Argument(metavar="B", help="Another one.")]


def command(a: A, b: B, json: Json = False) -> None:
    """Compare two exports: how much longer the second one says that the same work takes."""
    from hetsched.cli.commands.models.export_input import STANDARD_INPUT, read
    from hetsched.store.export_diff import difference

    if a == b == STANDARD_INPUT:
        raise UsageError("standard input can't be both exports: give a file for one of them")
    found = difference(read(a), read(b))
    if json:
        entries = [entry(one) for one in found]
        out_json({"schema": SCHEMA, "a": a, "b": b, "models": entries})
        return
    if not found:
        out("no models in either")
        return
    for line in columns(HEADER, [_row(one) for one in found], left=6):
        out(line)


def entry(one: Any) -> dict[str, Any]:
    """One model as JSON; `ratios` are (units, seconds in B over seconds in A)."""
    key = one.key
    return {
        **{name: getattr(key, name) for name in key.__struct_fields__},
        "in": _where(one),
        "agree": one.agree,
        "ratio": _median(one),
        "ratios": [list(pair) for pair in one.ratios],
    }


def _where(one: Any) -> str:
    if one.first is None or one.second is None:
        return "B" if one.first is None else "A"
    return "both"


def _what(one: Any) -> str:
    where = _where(one)
    if where != "both":
        return f"only in {where}"
    if one.first.observations == one.second.observations:
        return "the same"
    return "agree" if one.agree else "differ"


def _median(one: Any) -> float | None:
    return statistics.median(ratio for _, ratio in one.ratios) if one.ratios else None


def _row(one: Any) -> tuple[str, ...]:
    key = one.key
    ratios = [ratio for _, ratio in one.ratios]
    return (
        key.workload,
        of(key.speed_key),
        key.device,
        f"{key.variant} {key.version}",
        key.storage,
        _what(one),
        str(len(ratios)) if ratios else "-",
        number(_median(one)),
        number(min(ratios, default=None)),
        number(max(ratios, default=None)),
    )
