"""The table of shares and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from hetsched.explain.text.rows import device_rows
from hetsched.text import columns, folded
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.explain.records import DeviceExplanation, Explanation

MIN_COLUMN_WIDTH = 24
"""Maximum width of a text column, characters."""
MAX_CHUNK_SIZES = 6
"""Maximum number of chunk sizes in a row."""


def share_table(explanation: Explanation, width: int | None) -> list[str]:
    """Return variant, share and chunks of each device; `done` where units moved."""
    header = ["device", "variant", "share", "chunks"]
    devices = explanation.devices
    has_moved = explanation.job is not None and any(d.share != d.planned for d in devices)
    if has_moved:
        header.insert(3, "done")
    rows = []
    for label, members in device_rows(explanation):
        row = [label, ", ".join(dict.fromkeys(member.variant for member in members))]
        row.append(str(sum(member.planned for member in members)))
        if has_moved:
            row.append(str(sum(member.share for member in members)))
        rows.append([*row, _row_chunks(members)])
    return _with_folded_column(header, rows, width) if rows else []


def chunk_sizes(chunks: Sequence[tuple[int, int]], number: int) -> str:
    """Format ((9, 4), (1, 2)) as "9x4 + 2", without the middle of a long list.

    Parameters
    ----------
    chunks : sequence of (count, units)
    number : int
        Number of all chunks.
    """
    parts = [f"{count}x{units}" if count > 1 else str(units) for count, units in chunks]
    if len(parts) <= MAX_CHUNK_SIZES:
        return " + ".join(parts) or "-"
    half = MAX_CHUNK_SIZES // 2
    shortened = [*parts[:half], "...", *parts[-half:]]
    return f"{' + '.join(shortened)} ({number} chunks)"


def _row_chunks(members: Sequence[DeviceExplanation]) -> str:
    plans = dict.fromkeys(_device_chunks(member) for member in members)
    if len(plans) <= 2:
        return " or ".join(plans)
    return f"{next(iter(plans))} or similar"


def _device_chunks(device: DeviceExplanation) -> str:
    sizes = chunk_sizes(device.chunks, device.planned_chunks)
    if device.mode == "ring":
        return f"{sizes}, a ring of {counted(device.slots, 'slot')}"
    return f"{sizes}, installments" if device.mode else sizes


def _with_folded_column(header: list[str], rows: list[list[str]], width: int | None) -> list[str]:
    """Format columns, with the text of the last column wrapped."""
    front = columns(header[:-1], [row[:-1] for row in rows], left_columns=2)
    last = [header[-1], *(row[-1] for row in rows)]
    start = max(map(len, front)) + 2
    column_width = 10**6 if width is None else max(MIN_COLUMN_WIDTH, width - start)
    lines: list[str] = []
    for first, text in zip(front, last, strict=True):
        parts = [part.strip() for part in folded(text, column_width)]
        lines += [a.ljust(start) + b for a, b in zip_longest([first], parts, fillvalue="")]
    return lines
