"""Shortening of explanations with very many chunks, to fit into a message."""

from __future__ import annotations

import msgspec

from hetsched.device import ChunkTimeline, Timeline
from hetsched.explain.records import DeviceExplanation, Explanation

Span = tuple[float, float]


def thinned(explanation: Explanation, max_chunks: int) -> Explanation:
    """Return `explanation` with about `max_chunks` chunks in all timelines together.

    Successive chunks are merged, from the first start to the last end, and a note is added. Lists
    of planned chunks are cut to `max_chunks`. A short explanation is returned unchanged.
    """
    counts = [_chunk_count(device) for device in explanation.devices]
    if max(counts, default=0) <= max_chunks and sum(counts) <= max_chunks:
        return explanation
    group_size = -(-sum(counts) // max_chunks)
    devices = tuple(_thinned(device, group_size, max_chunks) for device in explanation.devices)
    note = f"timelines: chunks are merged, {group_size} at a time"
    return msgspec.structs.replace(explanation, devices=devices, notes=(*explanation.notes, note))


def _chunk_count(device: DeviceExplanation) -> int:
    lines = (device.plan, device.timeline)
    return max(len(device.chunks), *(len(line.chunks) if line else 0 for line in lines))


def _thinned(device: DeviceExplanation, group_size: int, max_chunks: int) -> DeviceExplanation:
    chunks = device.chunks
    if len(chunks) > max_chunks:
        half = max_chunks // 2
        chunks = (*chunks[:half], *chunks[-half:])
    return msgspec.structs.replace(
        device,
        chunks=chunks,
        plan=_merged(device.plan, group_size),
        timeline=_merged(device.timeline, group_size),
    )


def _merged(line: Timeline | None, group_size: int) -> Timeline | None:
    if line is None:
        return None
    starts = range(0, len(line.chunks), group_size)
    groups = [line.chunks[start : start + group_size] for start in starts]
    return Timeline(line.makespan, tuple(_merged_chunk(group) for group in groups))


def _merged_chunk(group: tuple[ChunkTimeline, ...]) -> ChunkTimeline:
    compute = _enclosing([chunk.compute for chunk in group])
    assert compute is not None, "every chunk has a compute phase"
    return ChunkTimeline(
        sum(chunk.units for chunk in group),
        _enclosing([chunk.copy_in for chunk in group]),
        compute,
        _enclosing([chunk.copy_out for chunk in group]),
        taken=all(chunk.taken for chunk in group),
    )


def _enclosing(spans: list[Span | None]) -> Span | None:
    """Return the span from the first start to the last end; None without spans."""
    present = [span for span in spans if span is not None]
    if not present:
        return None
    return min(start for start, _ in present), max(end for _, end in present)
