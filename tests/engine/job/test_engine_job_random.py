"""Random histories: whatever goes wrong, a job ends once, and no device writes afterwards.

Silence included: a process that does nothing any more must not stop a job.
"""

from __future__ import annotations

import pytest
from random_fleet import RandomFleet

from hetsched.engine.job import commands as do

JOBS_PER_TEST = 100


class WatchedFleet(RandomFleet):
    """Checks at the end of the job that its arrays can be released."""

    def execute(self, command: do.JobCommand) -> None:
        super().execute(command)
        if isinstance(command, do.FinishJob) and not self.lost_fences:
            assert self.writing() == []


@pytest.mark.parametrize("first_seed", range(0, 1000, JOBS_PER_TEST))
def test_every_job_ends_once_when_no_device_writes(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + JOBS_PER_TEST):
        fleet = WatchedFleet(seed)

        fleet.run()

        assert len(fleet.finish) == 1, f"seed {seed}: the job is stuck or ended twice"
        assert fleet.story.state == "Ended"


def test_without_trouble_every_job_is_done() -> None:
    for seed in range(JOBS_PER_TEST):
        fleet = WatchedFleet(seed)
        fleet.trouble = 0.0

        fleet.run()

        (finish,) = fleet.finish
        assert finish.error is None, f"seed {seed}"
