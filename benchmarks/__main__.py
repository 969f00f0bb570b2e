"""Runs all benchmarks, or those named; `--quick` runs small cases and saves nothing.

python -m benchmarks [--quick] [NAME ...]
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

from benchmarks import (
    command,
    fifth_job,
    file_job,
    first_use,
    fresh_runs,
    job_path,
    machines_plan,
    matrix_update,
    overhead,
    partition,
    pipeline,
    planning_time,
    plans,
    random_machines,
    results,
    small_jobs,
    solvers,
    split,
    tail,
    warm_job,
)

BENCHMARKS: dict[str, Callable[[bool], results.Result]] = {
    "warm_job": warm_job.measure,
    "warm_job_plain": warm_job.measure_plain,
    "matrix_update": matrix_update.measure,
    "overhead": overhead.measure,
    "fifth_job": fifth_job.measure,
    "file_job": file_job.measure,
    "first_use": first_use.measure,
    "job_path": job_path.measure,
    "fresh_runs": fresh_runs.measure,
    "small_jobs": small_jobs.measure,
    "solvers": solvers.measure,
    "split": split.measure,
    "tail": tail.measure,
    "random_machines": random_machines.measure,
    "pipeline": pipeline.measure,
    "partition": partition.measure,
    "machines_plan": machines_plan.measure,
    "planning_time": planning_time.measure,
    "plans": plans.measure,
}


def main() -> int:
    parser = command.parser("benchmarks", BENCHMARKS)
    parser.add_argument("--quick", action="store_true", help="small cases, few rounds, unsaved")
    given = parser.parse_args()
    names = command.chosen(parser, given.names, BENCHMARKS)
    chosen = {name: functools.partial(BENCHMARKS[name], given.quick) for name in names}
    save = None if given.quick else results.save
    return command.run_all(chosen, save, must_hold=not given.quick)


if __name__ == "__main__":
    sys.exit(main())
