"""Requests that list and change the queue, through a client and a daemon with a fake engine."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daemon_harness
import pytest
from daemon_harness import Harness

from hetsched.client.client import Client
from hetsched.client.job import Job
from hetsched.client.open_requests import EventFollower
from hetsched.daemon.queue_executor import CANCELLED_PER_TURN
from hetsched.daemon.requests.queue import status as status_request
from hetsched.errors import InputMissing, TryAgain, UsageError
from hetsched.job import JobSpec, Queued, words
from hetsched.transport.messages import Draining, JobEvent


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with daemon_harness.daemon(tmp_path) as harness:
        yield harness


@pytest.fixture
def client(harness: Harness) -> Iterator[Client]:
    with Client(harness.folder, timeout=60) as client:
        yield client


def submit(client: Client, workload: str = "queue", **options: Any) -> Job:
    return client.start(JobSpec(workload=workload, params={}, **options))


def test_a_waiting_job_is_held_and_released(client: Client) -> None:
    job = submit(client)

    held = client.hold(job.id)
    again = client.hold(job.id)
    released = client.release(job.id)

    assert (held.is_changed, held.state) == (True, Queued(job.id, 5, "held"))
    assert (again.is_changed, released.is_changed) == (False, True)
    assert released.state == Queued(job.id, 5, "priority")


def test_followers_see_that_a_job_is_held(client: Client) -> None:
    states: list[Any] = []
    job = client.start(JobSpec(workload="queue", params={}), follow=states.append)

    client.hold(job.id)

    assert client.show(job.id) == Queued(job.id, 5, "held")
    assert states[-1] == Queued(job.id, 5, "held")


def test_a_priority_is_changed_and_listed(client: Client) -> None:
    job = submit(client, priority=3, label="nightly", id="n-1")

    assert client.prioritize(job.id, -5).is_changed
    assert not client.prioritize(job.id, -5).is_changed

    (line,) = client.status()
    assert (line.priority, line.label, line.id) == (-5, "nightly", "n-1")
    assert line.state == Queued(job.id, 5, "priority")


def test_a_priority_has_limits(client: Client) -> None:
    with pytest.raises(UsageError, match="priority: 20 should be an integer from -20 to 19"):
        client.prioritize(submit(client).id, 20)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ("wait", "job 1 is running; only a waiting job can be held"),
        ("double", "job 1 has already ended: done; only a waiting job can be held"),
    ],
)
def test_only_a_waiting_job_can_be_held(client: Client, workload: str, message: str) -> None:
    submit(client, workload)

    with pytest.raises(UsageError) as error:
        client.hold(1)

    assert str(error.value) == message


def test_an_unknown_job_cannot_be_changed(client: Client) -> None:
    for change in (client.hold, client.release, lambda job: client.prioritize(job, 1)):
        with pytest.raises(InputMissing, match="no job 7"):
            change(7)


def test_an_error_in_the_engine_is_answered(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> bool:
        raise UsageError(f"job {number} is running")

    monkeypatch.setattr(harness.engine, "hold", fail)

    with pytest.raises(UsageError, match="job 1 is running"):
        client.hold(submit(client).id)


def test_all_jobs_are_cancelled_but_those_that_have_ended(client: Client) -> None:
    submit(client, "double")
    jobs = [submit(client, workload) for workload in ("wait", "queue", "queue")]

    assert client.cancel_all() == (2, 3, 4)

    assert not concurrent.futures.wait(jobs, 20).not_done
    assert client.cancel_all() == ()


def test_many_jobs_are_cancelled_the_newest_first_in_several_turns(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 * CANCELLED_PER_TURN + 5
    jobs = [submit(client, "queue") for _ in range(count)]
    cancelled: list[int] = []
    turns: list[int] = []
    monkeypatch.setattr(harness.engine, "cancel", cancelled.append)
    call_soon = harness.loop.call_soon
    monkeypatch.setattr(
        harness.server.queue, "_call_soon", lambda call: (turns.append(1), call_soon(call))
    )

    assert client.cancel_all() == tuple(job.id for job in jobs)

    assert cancelled == [job.id for job in reversed(jobs)]
    assert len(turns) == 2


def test_a_job_that_can_not_be_cancelled_does_not_keep_the_others(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = submit(client, "queue")
    job = submit(client, "queue")
    cancel = harness.engine.cancel

    def fail(number: int) -> None:
        if number == job.id:
            raise RuntimeError("a bug")
        cancel(number)

    monkeypatch.setattr(harness.engine, "cancel", fail)
    assert client.cancel_all() == (1, 2)
    with pytest.raises(concurrent.futures.CancelledError):
        other.result(60)
    assert not job.done()


def test_jobs_are_listed_by_state(client: Client) -> None:
    for workload, options in (
        ("double", {}),
        ("wait", {}),
        ("queue", {}),
        ("queue", {"hold": True}),
    ):
        submit(client, workload, **options)

    def numbers(*states: str) -> list[int]:
        return [line.job for line in client.status(states)]

    assert numbers("done") == [1]
    assert numbers("running", "done") == [1, 2]
    assert numbers("queued") == [3, 4]
    assert numbers("held") == [4]
    assert numbers("failed") == []
    with pytest.raises(UsageError, match="no job state 'ended'; choose from: queued, held"):
        client.status(["ended"])


def test_long_lists_come_in_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_request, "PAGE", 3)
    for _ in range(8):
        submit(client)

    assert [line.job for line in client.status()] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [line.job for line in client.status(limit=4)] == [5, 6, 7, 8]


def test_a_job_with_huge_parameters_is_listed_without_them(client: Client) -> None:
    client.start(JobSpec(workload="queue", params={"text": "x" * 600_000}))

    (line,) = client.status()

    assert line.params == {}


def test_an_ended_job_is_run_again_as_a_new_one(harness: Harness, client: Client) -> None:
    job = submit(client, "wait", id="x-1", label="nightly", after=(), priority=4)
    job.cancel()
    harness.until(lambda: not harness.engine.waiting)

    number = client.retry(job.id)

    spec = harness.engine.specs[-1]
    assert number == job.id + 1
    assert (spec.label, spec.priority, spec.id, spec.after) == ("nightly", 4, "", ())


def test_only_an_ended_job_is_run_again(client: Client) -> None:
    with pytest.raises(UsageError, match="job 1 hasn't ended; only an ended job can be run again"):
        client.retry(submit(client).id)


def test_a_job_with_arrays_is_run_again_only_by_a_client_that_has_them(
    harness: Harness, client: Client
) -> None:
    x = client.empty((4,), "float64")
    x[...] = 1
    job = client.submit("double", x)
    job.result(60)

    with (
        Client(harness.folder, timeout=60) as other,
        pytest.raises(InputMissing, match="used arrays of a program, which aren't kept"),
    ):
        other.retry(job.id)
    assert client.retry(job.id) == job.id + 1


def test_ended_jobs_are_forgotten(client: Client) -> None:
    for workload in ("double", "queue", "double"):
        submit(client, workload)

    assert client.clean(older=3600) == ()
    assert client.clean(["failed"]) == ()
    assert client.clean() == (1, 3)

    assert [line.job for line in client.status()] == [2]
    with pytest.raises(InputMissing, match="no job 1"):
        client.show(1)


def test_the_past_is_listed_by_state_and_time(client: Client) -> None:
    for workload in ("double", "wait", "double"):
        submit(client, workload)

    jobs = client.history(["done"])

    assert [line.job for line in jobs] == [1, 3]
    assert all(line.ended_at is not None for line in jobs)
    assert [line.job for line in client.history(limit=2)] == [2, 3]
    assert client.history(since=1e11) == ()


def test_a_drained_daemon_takes_no_jobs_until_that_is_undone(client: Client) -> None:
    submit(client)

    assert client.drain() == Draining(True, 1)
    with pytest.raises(TryAgain, match="the daemon is draining and takes no new jobs"):
        submit(client)

    assert client.drain(undo=True) == Draining(False, 1)
    submit(client)


def test_a_drained_daemon_stops_when_only_held_jobs_are_left(
    harness: Harness, client: Client
) -> None:
    stopped: list[bool] = []
    harness.server.queue.stop = lambda: stopped.append(True)
    running, held = submit(client, "wait"), submit(client, "queue")
    client.drain(stop=True)
    assert not harness.ask(lambda: stopped)

    client.hold(held.id)
    assert not harness.ask(lambda: stopped)
    client.cancel(running.id)

    assert harness.until(lambda: bool(stopped))


def test_events_are_numbered_and_end_with_the_last_job(harness: Harness, client: Client) -> None:
    received: list[tuple[int, str]] = []
    job = submit(client, "queue")
    follower = client.events(lambda n, state: received.append((n, words(state)[-1])), [job.id])

    client.hold(job.id)
    client.cancel(job.id)
    follower.done.result(60)

    assert received == [(1, "queued"), (2, "held"), (3, "cancelled")]
    assert follower.lost == 0


def test_events_of_unknown_jobs_are_refused(client: Client) -> None:
    follower = client.events(lambda n, state: None, [99])

    with pytest.raises(InputMissing, match="no job 99"):
        follower.done.result(60)


def test_lost_events_are_counted() -> None:
    numbers: list[int] = []
    follower = EventFollower(lambda n, state: numbers.append(n), ())

    for sequence in (1, 2, 7, 8, 10):
        follower.on_answer(JobEvent(sequence, Queued(1, 0)))

    assert numbers == [1, 2, 7, 8, 10]
    assert follower.lost == 5


def test_a_client_may_follow_only_so_often(client: Client) -> None:
    for _ in range(16):
        client.events(lambda n, state: None)

    with pytest.raises(TryAgain, match="already follows events 16 times, which is the limit"):
        client.events(lambda n, state: None).done.result(60)
