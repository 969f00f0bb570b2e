"""Panels of the picture of model speed functions: which lines, in which colours. Pure.

For one set of parameters there is a panel per curve; for several sets a panel per set, with the
curve `total`. A device and variant has the same colour everywhere; many equal cores share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hetsched.cli.output.model_labels import short_device, work_label
from hetsched.cli.output.plots.style import COLOURS
from hetsched.text import MAX_GROUP_ROWS, grouped_rows

if TYPE_CHECKING:
    from hetsched.models.samples import CurveName
    from hetsched.store.model_records import StoredModel

CURVE_TITLES: dict[CurveName, str] = {
    "total": "whole shares (total)",
    "compute": "kernels (compute)",
    "h2d": "copies to the device (h2d)",
    "d2h": "copies from the device (d2h)",
}


@dataclass(frozen=True)
class ModelLine:
    """One model with its label and colour."""

    label: str
    colour: str
    model: StoredModel


@dataclass(frozen=True)
class Panel:
    """One curve of several models."""

    title: str
    curve: CurveName
    lines: Sequence[ModelLine]


def lines_of(models: Sequence[StoredModel]) -> list[ModelLine]:
    """Give each model a label and a colour; equal cores share them if there are too many."""
    labels = _labels(models, MAX_GROUP_ROWS)
    if len(set(labels)) > len(COLOURS):
        labels = _labels(models, 1)
    colours: dict[str, str] = {}
    for label in labels:
        colours.setdefault(label, COLOURS[len(colours) % len(COLOURS)])
    return [
        ModelLine(label, colours[label], model)
        for label, model in zip(labels, models, strict=True)
    ]


def panels_of(lines: Sequence[ModelLine]) -> list[Panel]:
    """Arrange `lines` in panels; panels without points are left out."""
    sets: dict[str, list[ModelLine]] = {}
    for line in lines:
        sets.setdefault(work_label(line.model.speed_key), []).append(line)
    if len(sets) > 1:
        panels = [Panel(title, "total", members) for title, members in sets.items()]
    else:
        panels = [Panel(title, curve, lines) for curve, title in CURVE_TITLES.items()]
    drawable = [
        replace(panel, lines=[line for line in panel.lines if _has_points(line, panel.curve)])
        for panel in panels
    ]
    return [panel for panel in drawable if panel.lines]


def _labels(models: Sequence[StoredModel], max_cores: int) -> list[str]:
    """Label by device, and by variant and storage where these differ."""
    has_variants = len({(model.variant, model.version) for model in models}) > 1
    has_storages = len({model.storage for model in models}) > 1
    groups: dict[str, str] = {}
    devices = list(dict.fromkeys(short_device(model.device) for model in models))
    for label, members in grouped_rows(devices, str, max_cores):
        groups.update(dict.fromkeys(members, label))
    return [
        ", ".join(
            [
                groups[short_device(model.device)],
                *([model.variant] if has_variants else []),
                *([model.storage] if has_storages else []),
            ]
        )
        for model in models
    ]


def _has_points(line: ModelLine, curve: CurveName) -> bool:
    """Whether to draw the curve; a core's `compute` hardly differs from its `total`."""
    model = line.model
    return bool(model.knots(curve)) and (curve != "compute" or bool(model.knots("h2d")))
