"""Hosts and their Dask workers killed and stopped at random moments: every result is right."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hetsched
from hetsched.errors import JobFailed, TryAgain

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.stress, pytest.mark.filterwarnings("ignore")]  # of distributed's own
FAULTS = 50 * int(os.environ.get("HETSCHED_STRESS", "1"))
PATIENCE = 2.0
WHAT = ("worker", "host")


class Faults:
    """Strikes one of the processes every now and then; a stopped one goes on later."""

    def __init__(self, scheduler: str, client: Any, seed: int) -> None:
        self._client = client
        self._chance = random.Random(seed)
        self._dask = distributed.Client(scheduler, set_as_default=False)
        self._is_over = threading.Event()
        self.count: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _pids(self) -> list[tuple[str, int]]:
        def both(dask_worker: Any) -> tuple[int, int | None]:
            known = getattr(dask_worker, "hetsched", None)
            return os.getpid(), known and known[-1].pid

        found = self._dask.run(both, on_error="ignore")
        return [
            (what, pid)
            for pair in found.values()
            for what, pid in zip(WHAT, pair, strict=True)
            if pid
        ]

    def _run(self) -> None:
        try:
            while self.count.total() < FAULTS and not self._is_over.is_set():
                self._is_over.wait(self._chance.uniform(0.1, 1.0))
                self._client.wait_for_hosts(2, timeout=120)
                try:
                    what, pid = self._chance.choice(self._pids())
                except (OSError, IndexError, KeyError, ValueError):  # none is there
                    continue
                number = self._chance.choice([signal.SIGKILL, signal.SIGSTOP])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                    self.count[f"{what} {signal.Signals(number).name}"] += 1
                    if number == signal.SIGSTOP:
                        self._is_over.wait(self._chance.uniform(0.1, 2 * PATIENCE))
                        os.kill(pid, signal.SIGCONT)
        except BaseException as error:
            self.failure = error
        finally:
            self._dask.close()

    def close(self) -> None:
        self._is_over.set()
        self.thread.join()


@contextlib.contextmanager
def struck(seed: int) -> Iterator[tuple[Any, Faults]]:
    """A client of three hosts, and what strikes them until it has done so often enough."""
    patient = {"distributed.deploy.lost-worker-timeout": "1 hour"}  # or it gives up what is killed
    with (
        dask.config.set(patient),
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        hetsched.Client(cluster=cluster.scheduler_address, patience=PATIENCE) as client,
    ):
        faults = Faults(cluster.scheduler_address, client, seed)
        faults.thread.start()
        try:
            yield client, faults
        finally:
            faults.close()
        assert faults.failure is None, faults.failure
        client.wait_for_hosts(3)
    assert faults.count.total() >= FAULTS


def test_results_are_right_whatever_becomes_of_hosts_and_workers(stress: Any) -> None:
    rng = np.random.default_rng(0)
    planes = rng.standard_normal((120, 64, 64)) + 1j
    table, spectra = rng.random((2000, 500)), np.fft.fft2(planes)
    jobs = again = 0
    with struck(seed=1) as (client, faults):
        while faults.thread.is_alive():
            job = client.submit("fft", planes)
            np.testing.assert_allclose(job.result(300), spectra, atol=1e-9)
            np.testing.assert_array_equal(client.map("numpy:sqrt", table), np.sqrt(table))
            jobs, again = jobs + 2, again + job.outcome.again
    stress.record("jobs", jobs)
    stress.record("units computed again", again)
    stress.record_all(faults.count)


def test_grids_are_right_whatever_becomes_of_hosts_and_workers(stress: Any) -> None:
    given = {"steps": 4000, "border": "dirichlet,periodic"}
    initial = np.random.default_rng(0).random((180, 150), np.float32)
    with hetsched.Local() as local:
        final = local.submit("heat", initial, **given).result()["final"].copy()
    jobs = ended = again = 0
    with struck(seed=2) as (client, faults):
        while faults.thread.is_alive():
            job = client.submit("heat", initial, every=0.1, **given)
            try:
                np.testing.assert_array_equal(job.result(300)["final"], final)
                jobs += 1
            except (JobFailed, TryAgain) as error:  # hosts were lost again and again, or all
                ended += 1
                print(error)
            again += job.outcome.again
        result = client.submit("heat", initial, **given).result(300)
        np.testing.assert_array_equal(result["final"], final)
    stress.record_all({"jobs": jobs, "given up": ended, "steps again": again})
    stress.record_all(faults.count)
