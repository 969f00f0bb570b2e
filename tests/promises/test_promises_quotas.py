"""No client locks out the others, and what is forgotten is still found by its id."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from served import CORES, Daemon, refused, serving, until

import hetsched

NARROW = """
[limits]
ended_jobs = "16KiB"
[queue]
limit = 8
[arena]
limit = "32MiB"
"""
TINY = {"batch": "1x8x8"}
LARGE = {"batch": "16x256x256"}
"""Results of 8 MiB."""
SUBMIT = ("submit", "fft", "--batch", "1x8x8")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with serving(CORES + NARROW) as daemon:
        yield daemon


def kept_results(daemon: Daemon, client: hetsched.Client, count: int) -> list[int]:
    """Return the numbers of jobs that nobody has asked for results; free all others."""
    gc.collect()  # tracebacks of an earlier test may refer to its arrays
    with daemon.client() as submitter:
        numbers = [submitter.submit("fft", **LARGE).id for _ in range(count)]
    until(lambda: all(type(client.show(number)).__name__ == "Done" for number in numbers))
    return numbers


def test_results_are_kept_until_others_need_the_room_but_never_taken_from_who_has_them(
    daemon: Daemon, client: hetsched.Client
) -> None:
    numbers = kept_results(daemon, client, 5)
    for number in numbers[:2]:  # the last job needed memory for its input, too
        with refused(66, "hetsched retry"):
            client.job(number).result(60)
    held = [client.job(number).result(60) for number in numbers[2:]]
    assert all(y.any() for y in held)
    with refused(75, "are in use"):
        client.submit("fft", **LARGE).result(60)
    del held[0]
    assert client.submit("fft", **LARGE).result(60).any()
    assert all(y.any() for y in held)


def test_an_id_finds_its_job_when_newer_ones_have_displaced_it(client: hetsched.Client) -> None:
    first = client.submit("fft", id="mine", **TINY)
    first.result(60)
    for _ in range(20):
        client.submit("fft", **TINY).result(60)
    with refused(66):
        client.show(first.id)

    assert client.submit("fft", id="mine", **TINY).id == first.id
    with refused(65, "another request"):
        client.submit("fft", id="mine", batch="2x8x8")


def test_one_client_leaves_others_room_in_the_queue(
    daemon: Daemon, client: hetsched.Client
) -> None:
    for _ in range(7):
        client.submit("fft", hold=True, **TINY)
    with daemon.client() as another, refused(75, "queue.per_client"):
        another.submit("fft", **TINY)

    assert daemon.call(*SUBMIT, start_new_session=True).code == 0


def test_one_client_leaves_others_room_in_the_shared_memory(
    daemon: Daemon, client: hetsched.Client
) -> None:
    kept_results(daemon, client, 3)
    with daemon.client() as another:
        kept = [each.empty((3 << 20,), "uint8") for each in (client, another) for _ in range(4)]
        with refused(75, "one client"):
            another.empty((6 << 20,), "uint8")
        assert len(kept) == 8

        assert daemon.call(*SUBMIT, start_new_session=True).code == 0
