"""The split and its prediction, learnt from scratch, on random emulated machines."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import hetsched
from benchmarks.machines import draw
from benchmarks.peers.fft_case import fill
from benchmarks.results import Bar, Result
from benchmarks.serving import daemon, report
from benchmarks.split import facts
from hetsched.config import parse

RUNS, BALANCED_BY = 8, 4
"""Runs per machine, and the run by which it must be balanced."""
REAL, VIRTUAL = 10, 50
QUICK_REAL, QUICK_VIRTUAL = 1, 3
REAL_SHAPE, VIRTUAL_SHAPE = (64, 512, 512), (150, 64, 64)
MAX_PREDICTION_ERROR = 0.10
MIN_BALANCED = 0.9
"""Fraction of the trials on the real clock that must meet the limits."""


def measure(quick: bool) -> Result:
    columns = ("clock", "machine", "devices", "spread", "allowed", "prediction error", "late")
    result = Result("random_machines", "Random machines: the split from nothing", columns)
    virtual = [trial(seed, "virtual") for seed in range(QUICK_VIRTUAL if quick else VIRTUAL)]
    real = [trial(seed, "real") for seed in range(QUICK_REAL if quick else REAL)]
    for clock, trials in (("virtual", virtual), ("real", real)):
        for seed, outcome in enumerate(trials):
            result.data.append({"clock": clock, "seed": seed, **outcome})
            if clock == "real" or not outcome["holds"]:
                result.rows.append(row(clock, seed, outcome))
    errors = [outcome["error"] for outcome in real]
    result.bars = [
        Bar("virtual clock: machines balanced and predicted", fraction_holding(virtual), 1.0),
        Bar("real clock: machines balanced by run 4", fraction_holding(real), MIN_BALANCED),
        Bar(
            "real clock: prediction error",
            statistics.median(errors),
            MAX_PREDICTION_ERROR,
            at_least=False,
        ),
    ]
    return result


def trial(seed: int, clock: str) -> dict[str, Any]:
    """Run one machine without models. `holds`: balanced by run 4, and predicted if virtual."""
    shape = REAL_SHAPE if clock == "real" else VIRTUAL_SHAPE
    text = f"stealing = false\n{draw(seed, clock, shape[1] * shape[2] * 8)}"
    runs = list(served(text, shape) if clock == "real" else embedded(text, shape))
    fourth = runs[BALANCED_BY - 1]
    errors = [abs(run["accuracy"] - 1) for run in runs[BALANCED_BY - 1 :]]
    error = statistics.median(errors)
    balanced = fourth["spread"] <= fourth["allowed"]
    holds = balanced if clock == "real" else balanced and error <= MAX_PREDICTION_ERROR
    return {"machine": text, "runs": runs, "fourth": fourth, "error": error, "holds": holds}


def embedded(text: str, shape: tuple[int, ...]) -> list[dict[str, Any]]:
    with hetsched.Local(parse(text, "machine"), learn=False) as local:
        return jobs(local, shape)


def served(text: str, shape: tuple[int, ...]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "machine.toml"
        path.write_text(text, encoding="utf-8")
        with daemon(str(path)) as server:
            return jobs(server.client, shape)


def jobs(client: hetsched.Client | hetsched.Local, shape: tuple[int, ...]) -> list[dict[str, Any]]:
    x, y = client.empty(shape, "complex64"), client.empty(shape, "complex64")
    fill(x)
    outcomes = []
    for _ in range(RUNS):
        job = client.submit("fft", x, out=y)
        job.result()
        outcomes.append(facts(report(job)))
    return outcomes


def fraction_holding(trials: list[dict[str, Any]]) -> float:
    return sum(bool(outcome["holds"]) for outcome in trials) / len(trials)


def row(clock: str, seed: int, outcome: dict[str, Any]) -> tuple[str, ...]:
    fourth = outcome["fourth"]
    late = sum(run["late"] for run in outcome["runs"])
    return (
        clock,
        str(seed),
        str(len(fourth["shares"])),
        f"{fourth['spread']:.3f}",
        f"{fourth['allowed']:.3f}",
        f"{outcome['error']:.3f}",
        str(late),
    )
