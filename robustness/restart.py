"""The daemon is killed with many jobs in its journal: seconds until it is ready, nothing lost."""

from __future__ import annotations

import random
import statistics

from benchmarks.results import Bar, Result
from hetsched.job import Queued
from hetsched.transport.messages import Show, State
from robustness.daemon import Daemon, daemon
from robustness.raw_client import RawClient
from robustness.scale import Scale
from robustness.submissions import CONFIG, submit

SAMPLES = 100


def measure(scale: Scale) -> Result:
    jobs, restarts = scale.of(200, 10_000, 10_000), scale.of(1, 5, 20)
    result = Result(
        "restart",
        "Restart with many jobs in the journal",
        (
            "jobs in the journal",
            "restarts",
            "seconds to READY, median",
            "most",
            "lost, of samples",
        ),
    )
    seconds, lost = [], 0
    generator = random.Random(scale.seed)
    with daemon(CONFIG) as served:
        submit(served.folder, jobs)
        for _ in range(restarts):
            served.kill()
            seconds.append(served.start())
            lost += _lost(served, [generator.randint(1, jobs) for _ in range(SAMPLES)])
    median, most = statistics.median(seconds), max(seconds)
    result.rows.append((str(jobs), str(restarts), f"{median:.2f}", f"{most:.2f}", str(lost)))
    result.data.append({"jobs": jobs, "seconds": seconds, "lost": lost})
    result.bars.append(Bar("jobs lost", lost, 0, at_least=False))
    result.bars.append(Bar("median seconds to READY", median, 1.0, at_least=False))
    return result


def _lost(served: Daemon, numbers: list[int]) -> int:
    """Count the jobs that aren't in the queue any more."""
    with RawClient(served.folder) as client:
        answers = [client.ask(Show(number)) for number in numbers]
    return sum(
        not (isinstance(answer, State) and isinstance(answer.state, Queued)) for answer in answers
    )
