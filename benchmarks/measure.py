"""Compares curves measured by `hetsched models measure` with those of the emulated devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import Bar, Result
from benchmarks.serving import places
from hetsched import paths
from hetsched.cli.output.model_labels import short_device
from hetsched.config import Config, load
from hetsched.models.samples import CurveName
from hetsched.store.model_records import collect
from hetsched.workload import find

SIZES, QUICK_SIZES = (1, 2, 4, 8, 16), (1, 4)
LONG = 5e-3
"""Shortest phase on the real clock to which the limit applies, seconds."""
REAL, VIRTUAL = 0.03, 1e-9
"""Allowed relative errors."""
CURVES: tuple[CurveName, ...] = ("compute", "h2d", "d2h")


@dataclass(frozen=True)
class Point:
    """One size of one curve, seconds."""

    device: str
    curve: str
    units: int
    given: float
    learnt: float

    @property
    def error(self) -> float:
        return abs(self.learnt / self.given - 1)


def measure(quick: bool) -> Result:
    columns = ("clock", "device", "curve", "sizes", "longest, ms", "worst relative error")
    result = Result("measure", "Measured curves of emulated devices", columns)
    sizes = QUICK_SIZES if quick else SIZES
    add(result, "virtual", sizes, (64, 64), 0.0, VIRTUAL)
    add(result, "real", sizes, (512, 512), LONG, REAL)
    return result


def add(
    result: Result,
    clock: str,
    sizes: tuple[int, ...],
    plane: tuple[int, int],
    least: float,
    limit: float,
) -> None:
    """Measure the devices of `emulated-gpu`, on this clock."""
    with tempfile.TemporaryDirectory(prefix="hs-") as folder, places(folder):
        text = Path(load("emulated-gpu")[1]).read_text(encoding="utf-8")
        path = Path(folder) / "emulated.toml"
        path.write_text(text.replace('"real"', f'"{clock}"'), encoding="utf-8")
        batch = "x".join(map(str, (max(sizes), *plane)))
        record = run(["--batch", batch, "--sizes", ",".join(map(str, sizes)), "--config", path])
        points = list(compared(load(str(path))[0], batch))
    counted = [point for point in points if point.given >= least]
    result.data.append({"clock": clock, "report": record, "points": [vars(p) for p in points]})
    for key in dict.fromkeys((point.device, point.curve) for point in counted):
        mine = [point for point in counted if (point.device, point.curve) == key]
        longest, worst = max(p.given for p in mine) * 1e3, max(p.error for p in mine)
        result.rows.append((clock, *key, str(len(mine)), f"{longest:.3g}", f"{worst:.2g}"))
    worst = max(point.error for point in counted)
    result.bars += [
        Bar(f"{clock} clock, worst relative error", worst, limit, at_least=False),
        Bar(f"{clock} clock, phases that were late", record["late"], 0, at_least=False),
    ]


def run(words: list[Any]) -> dict[str, Any]:
    """Return the report of `models measure fft`."""
    command = [sys.executable, "-m", "hetsched.cli.main", "models", "measure", "fft", "--json"]
    done = subprocess.run(
        [*command, *map(str, words)], stdout=subprocess.PIPE, env=os.environ, check=True
    )
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def compared(config: Config, batch: str) -> Iterator[Point]:
    """Return every measured point with the configured time of its device."""
    fft = find("fft")
    params = fft.infer({"batch": batch}, {})
    flops, nbytes = fft.flops(params, 1), params.plane_bytes
    devices = {device.name: device for device in config.device}
    for model in collect(paths.models_path()).models:
        device = short_device(model.device)
        for curve in CURVES:
            cost = getattr(devices[device], curve)
            for knot in model.knots(curve):
                given = cost.seconds(int(knot.units), nbytes, flops)
                yield Point(device, curve, int(knot.units), given, knot.seconds)
