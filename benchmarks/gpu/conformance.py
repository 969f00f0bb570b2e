"""Checks the CUDA device's results: storage, slots, chunk sizes, barriers, split copies."""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.common import Report, open_runtime
from benchmarks.gpu_check import ROOT

sys.path.insert(0, str(ROOT / "tests" / "devices"))

import accelerator_toys


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = itertools.product(
            ("arena", "file", "plain"), (1, 2, 3, 4), (1, 7, 64), (False, True)
        )
        for storage, slots, chunk, in_place in cases:
            params = accelerator_toys.AffineParams(200, 64 if report.dry else 16384, in_place)
            bench = accelerator_toys.Bench(
                runtime, storage, Path(folder), params, chunk, slots, slice_bytes=1 << 20
            )
            bench.run(barriers=5 if chunk == 7 else 0)
            is_right = bench.is_right()
            bench.close()
            wrong += not is_right
            report.row(
                "cases",
                storage=storage,
                slots=slots,
                chunk=chunk,
                in_place=in_place,
                right=is_right,
            )
    report.put(wrong=wrong)
    if wrong:
        raise RuntimeError(f"{wrong} cases gave wrong results")
