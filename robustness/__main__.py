"""Runs all scenarios, or those named, and records their figures in docs/robustness.md.

python -m robustness [--long | --quick] [--seed N] [NAME ...]
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks import command
from benchmarks.results import Result, save
from robustness import (
    ack_order,
    checkpoint_kills,
    daemon_kills,
    device_faults,
    disk_faults,
    durable_latency,
    few_descriptors,
    gpu_kills,
    hanging_code,
    iteration_kills,
    journal_rate,
    malformed_frames,
    mixed_faults,
    model_based,
    power_cuts,
    publication,
    restart,
    slow_follower,
    small_jobs,
    soak,
    solver_matrix,
    stop_ladder,
    stop_signal,
    submissions,
)
from robustness.scale import LONG, SHORT, TEST, Scale

PAGE = Path(__file__).parent.parent / "docs" / "robustness.md"
RESULTS = Path(__file__).parent / "results"

SCENARIOS: dict[str, Callable[[Scale], Result]] = {
    "malformed_frames": malformed_frames.measure,
    "stop_signal": stop_signal.measure,
    "stop_ladder": stop_ladder.measure,
    "few_descriptors": few_descriptors.measure,
    "device_faults": device_faults.measure,
    "mixed_faults": mixed_faults.measure,
    "hanging_code": hanging_code.measure,
    "iteration_kills": iteration_kills.measure,
    "gpu_kills": gpu_kills.measure,
    "solver_matrix": solver_matrix.measure,
    "checkpoint_kills": checkpoint_kills.measure,
    "daemon_kills": daemon_kills.measure,
    "power_cuts": power_cuts.measure,
    "disk_faults": disk_faults.measure,
    "journal_rate": journal_rate.measure,
    "publication": publication.measure,
    "ack_order": ack_order.measure,
    "slow_follower": slow_follower.measure,
    "submissions": submissions.measure,
    "durable_latency": durable_latency.measure,
    "restart": restart.measure,
    "model_based": model_based.measure,
    "soak": soak.measure,
    "small_jobs": small_jobs.measure,
}


def main() -> int:
    parser = command.parser("robustness", SCENARIOS)
    parser.add_argument("--seed", type=int, default=0)
    counts = parser.add_mutually_exclusive_group()
    counts.add_argument("--long", action="store_true", help="full counts, default deadlines")
    counts.add_argument("--quick", action="store_true", help="the counts of the tests, unsaved")
    given = parser.parse_args()
    scale = replace(LONG if given.long else TEST if given.quick else SHORT, seed=given.seed)
    names = command.chosen(parser, given.names, SCENARIOS)
    scenarios = {name: functools.partial(SCENARIOS[name], scale) for name in names}
    save_it = None if given.quick else functools.partial(save, folder=RESULTS, page=PAGE)
    return command.run_all(scenarios, save_it)


if __name__ == "__main__":
    sys.exit(main())
