"""Quotas of the queue."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path

import daemon_harness
import pytest

from hetsched.client.client import Client
from hetsched.config import parse
from hetsched.daemon.limits.job_quota import JobQuota
from hetsched.daemon.records import Limits
from hetsched.errors import ConfigError, TryAgain
from hetsched.job import JobSpec

SPEC = JobSpec(workload="queue", params={"text": "x" * 1000})


def test_a_client_with_too_many_jobs_waits_until_some_have_ended() -> None:
    quota = JobQuota(per_client=2, parameters=1 << 20)
    for ticket in (1, 2):
        quota.check(session=7)
        quota.add(ticket, 7, SPEC)

    with pytest.raises(TryAgain, match=r"has 2 unfinished jobs.*queue\.per_client in the config"):
        quota.check(session=7)
    quota.check(session=8)
    quota.remove(1)
    quota.check(session=7)


def test_parameters_are_counted_over_all_clients() -> None:
    quota = JobQuota(per_client=None, parameters=2000)
    for ticket in (1, 2):
        quota.check(session=ticket)
        quota.add(ticket, ticket, SPEC)

    with pytest.raises(TryAgain, match=r"the limit is 1\.95 KiB \(queue\.parameters in the"):
        quota.check(session=3)
    quota.remove(2)
    quota.remove(2)
    quota.check(session=3)

    quota.remove(1)
    assert quota.nbytes == 0


def test_the_daemon_enforces_the_quotas_of_its_configuration(tmp_path: Path) -> None:
    limits = Limits(jobs_per_client=2, followed_jobs=1)
    with daemon_harness.daemon(tmp_path, limits) as harness, Client(tmp_path) as client:
        jobs = [client.start(SPEC) for _ in range(2)]
        with pytest.raises(TryAgain, match=r"queue\.per_client"):
            client.start(SPEC)

        with Client(harness.folder) as other:
            follower = other.job(jobs[0].id)
            with pytest.raises(TryAgain, match=r"already follows 1 job.*queue\.followers"):
                other.job(jobs[1].id)
            other.cancel(jobs[0].id)
            wait([follower], 10)

        client.start(SPEC)


def test_wrong_quotas_are_found_when_the_configuration_is_read() -> None:
    for line, message in (
        ("per_client = 0", "queue.per_client"),
        ('parameters = "much"', "queue.parameters: 'much' is not a size"),
        ("followers = 0", "queue.followers"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse(f"[queue]\n{line}\n", "test.toml")
