"""Formats text for the terminal: escaped, in columns, in few digits. Pure; prints nothing."""

from __future__ import annotations

import base64
import html
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

Item = TypeVar("Item")

MAX_GROUP_ROWS = 8
"""Up to this many devices of one kind have a row each; more share a row."""


def clean(text: str) -> str:
    """Return `text` on one line, with control and bidirectional characters escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def clean_json(text: str) -> str:
    """Escape what `clean` would in the strings of a JSON document, as JSON does."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = (units[start : start + 2].hex() for start in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs)


class Shown(str):
    """Text that interpreters and notebooks show as `print` does, without quotes."""

    __repr__ = str.__str__


def notebook_bundle(text: str, picture: str | None = None) -> dict[str, str]:
    """Return what a notebook shows of an object, by MIME type. `picture`: SVG."""
    shown = f"<pre>{html.escape(text)}</pre>"
    if picture is not None:  # As an image: notebooks that aren't trusted drop SVG within HTML
        data = base64.b64encode(picture.encode()).decode()
        shown = f'<img src="data:image/svg+xml;base64,{data}">{shown}'
    return {"text/plain": text, "text/html": shown}


def columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left_columns: int = 1,
    width: int | None = None,
) -> list[str]:
    """Format a table as lines: `left_columns` left-aligned columns, then right-aligned ones.

    Headings are wrapped if the table is wider than `width` characters.
    """
    table = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    if width is not None and sum(widths) + 2 * len(widths) - 2 > width:
        table = [*_wrapped_heading(table), *table[1:]]
        widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if i < left_columns else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def _wrapped_heading(table: Sequence[Sequence[str]]) -> list[list[str]]:
    """Wrap the heading of `table` to the width of the cells below or of its longest word."""
    cells = []
    for i, head in enumerate(table[0]):
        min_width = max([1, *(len(row[i]) for row in table[1:]), *map(len, head.split())])
        cells.append(textwrap.wrap(head, min_width))
    height = max(map(len, cells))
    padded = [[""] * (height - len(cell)) + cell for cell in cells]
    return [list(row) for row in zip(*padded, strict=True)]


def folded(line: str, width: int) -> list[str]:
    """Wrap `line` to `width` characters; continuation lines are indented."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def seconds_column(values: Sequence[float | None]) -> list[str]:
    """Format seconds with equal decimals: three significant digits of the largest."""
    finite = [v for v in values if v is not None and v > 0 and math.isfinite(v)]
    decimals = max(0, 2 - math.floor(math.log10(max(finite)))) if finite else 3
    return ["-" if v is None else f"{v:.{min(decimals, 9)}f}" for v in values]


def number(value: float | None) -> str:
    """Format with three significant digits, or all before the point: "9626", never "1e+04"."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def grouped_rows(
    devices: Sequence[Item], name: Callable[[Item], str], limit: int = MAX_GROUP_ROWS
) -> list[tuple[str, list[Item]]]:
    """Return a table's rows: one per device, or "cpu (16)" for more than `limit` of a group."""
    groups: dict[str, list[Item]] = {}
    for device in devices:
        groups.setdefault(name(device).rstrip("0123456789"), []).append(device)
    rows: list[tuple[str, list[Item]]] = []
    for group, members in groups.items():
        if len(members) > limit:
            rows.append((f"{group} ({len(members)})", members))
        else:
            rows.extend((name(member), [member]) for member in members)
    return rows


def named_rows(names: Sequence[str]) -> str:
    """Return the names of these rows, as in a table: "gpu0, cpu (16)"."""
    return ", ".join(label for label, _ in grouped_rows(names, str))


MAX_NAMED_DEVICES = 2
"""Up to this many devices of a group are named one by one."""


def groups_of(names: Sequence[str]) -> list[list[str]]:
    """Return ["cpu0", "gpu0", "cpu1"] as [["cpu0", "cpu1"], ["gpu0"]]."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.rstrip("0123456789"), []).append(name)
    return list(groups.values())


def group_name(names: Sequence[str]) -> str:
    """Return "cpu0 and cpu1", or for more devices "cpu0 to cpu7" or "5 of cpu0 to cpu7"."""
    if len(names) <= MAX_NAMED_DEVICES:
        return " and ".join(names)
    span = f"{names[0]} to {names[-1]}"
    numbers = [name[len(name.rstrip("0123456789")) :] for name in (names[0], names[-1])]
    is_range = all(numbers) and int(numbers[1]) - int(numbers[0]) + 1 == len(names)
    return span if is_range else f"{len(names)} of {span}"


def parameters(params: Mapping[str, object], shapes: Mapping[str, str] | None = None) -> str:
    """Return e.g. "batch=256x512x512 dtype=complex64", or shapes of arrays "A=512x512 float64".

    Parameters without a value are left out.
    """
    words = [f"{name or 'input'}={shape}" for name, shape in (shapes or {}).items()]
    for key, value in params.items():
        text = "" if value is None else str(value)
        if isinstance(value, list | tuple) and all(type(n) is int for n in value):
            text = "x".join(map(str, value))
        words += [f"{key}={text}"] if text else []
    return " ".join(words)


def short_device(device: str) -> str:
    """Return a device's name without its description: "cpu0" of "cpu0 Some Processor"."""
    return device.partition(" ")[0]


def work_label(speed_key: str) -> str:
    """Describe a model's speed key: "512x512 complex64, 23.6 Mflop per unit"."""
    *arrays, flops = speed_key.split(" ")
    shapes = [" ".join(array.split(":")[2:]) for array in arrays if array.count(":") == 3]
    try:
        work = f"{float(flops) / 1e6:.3g} Mflop per unit"
    except ValueError:
        return speed_key
    return ", ".join([*dict.fromkeys(map(str.strip, shapes)), work])
