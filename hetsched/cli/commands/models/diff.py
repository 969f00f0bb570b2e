"""`hetsched models diff A B`: compare two exports, model by model."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from hetsched.cli.commands.models.records import KeyFields, key_fields
from hetsched.cli.output.model_labels import work_label
from hetsched.cli.output.terminal import columns, number, out, out_json
from hetsched.cli.request_flags import Json
from hetsched.errors import UsageError

if TYPE_CHECKING:
    from hetsched.store.models.export_diff import ModelDifference

SCHEMA = "hetsched.models.diff/2"
HEADER = (
    "workload", "of", "device", "variant", "storage", "beside",
    "result", "sizes", "B/A time", "min", "max",
)  # fmt: skip
A = Annotated[str, typer.Argument(metavar="A", help="An export; - for standard input.")]
B = Annotated[str, typer.Argument(metavar="B", help="Another export.")]


class DifferenceRecord(KeyFields, frozen=True, kw_only=True):
    """One model as JSON; `ratios` are (units, seconds in B / seconds in A)."""

    source: str = msgspec.field(name="in")
    agree: bool
    ratio: float | None
    ratios: list[tuple[float, float]]


def command(a: A, b: B, json: Json = False) -> None:
    """Compare the times in two exports."""
    from hetsched.cli.commands.models.export_file import STANDARD_INPUT, read
    from hetsched.store.models.export_diff import difference

    if a == b == STANDARD_INPUT:
        raise UsageError("only one export can come from standard input; give a file for the other")
    differences = difference(read(a), read(b))
    if json:
        records = [_record(item) for item in differences]
        out_json({"schema": SCHEMA, "a": a, "b": b, "models": records})
        return
    if not differences:
        out("no models in either export")
        return
    for line in columns(HEADER, [_row(item) for item in differences], left_columns=7):
        out(line)


def _record(item: ModelDifference) -> DifferenceRecord:
    return DifferenceRecord(
        **key_fields(item.key),
        source=_source(item),
        agree=item.agree,
        ratio=_median(item),
        ratios=list(item.ratios),
    )


def _source(item: ModelDifference) -> str:
    if item.first is None or item.second is None:
        return "B" if item.first is None else "A"
    return "both"


def _result(item: ModelDifference) -> str:
    if item.first is None or item.second is None:
        return f"only in {_source(item)}"
    if item.first.observations == item.second.observations:
        return "the same"
    return "agree" if item.agree else "differ"


def _median(item: ModelDifference) -> float | None:
    return statistics.median(ratio for _, ratio in item.ratios) if item.ratios else None


def _row(item: ModelDifference) -> tuple[str, ...]:
    key = item.key
    ratios = [ratio for _, ratio in item.ratios]
    return (
        key.workload,
        work_label(key.speed_key),
        key.device,
        f"{key.variant} {key.version}",
        key.storage,
        key.co_runners,
        _result(item),
        str(len(ratios)) if ratios else "-",
        number(_median(item)),
        number(min(ratios, default=None)),
        number(max(ratios, default=None)),
    )
