"""Which jobs may overtake others, by the arrays and files that they share."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from hetsched.engine.concurrency.array_order import ArrayOrder, ArrayUse, Place
from hetsched.job import ArenaOut, ArenaRef, FileOut, FileRef, JobSpec

places = st.frozensets(st.integers(1, 5), max_size=3)
uses = st.builds(ArrayUse, places, places)


def use(*, reads: tuple[Place, ...] = (), writes: tuple[Place, ...] = ()) -> ArrayUse:
    return ArrayUse(frozenset(reads), frozenset(writes))


def order(*jobs: ArrayUse) -> ArrayOrder:
    made = ArrayOrder()
    for number, job in enumerate(jobs, 1):
        made.add(number, job)
    return made


def test_jobs_that_read_the_same_array_may_overtake_each_other() -> None:
    assert order(use(reads=(7,)), use(reads=(7,), writes=(8,))).may_overtake(2)


def test_a_job_does_not_overtake_the_one_that_writes_its_input() -> None:
    assert not order(use(writes=("/a.npy",)), use(reads=("/a.npy",))).may_overtake(2)


def test_a_job_does_not_overtake_the_one_that_reads_what_it_writes() -> None:
    assert not order(use(reads=(7,)), use(writes=(7,))).may_overtake(2)


def test_a_job_does_not_overtake_the_one_that_writes_the_same_array() -> None:
    assert not order(use(writes=(7,)), use(writes=(7,))).may_overtake(2)


def test_what_a_job_reads_and_writes_itself_is_no_obstacle() -> None:
    assert order(use(reads=(7,), writes=(7,))).may_overtake(1)


def test_an_ended_job_is_no_obstacle() -> None:
    jobs = order(use(writes=(7,)), use(reads=(7,)))

    jobs.remove(1)

    assert jobs.may_overtake(2)


def test_segments_and_files_of_a_request_are_found() -> None:
    spec = JobSpec(
        workload="fft",
        params={},
        inputs={"x": ArenaRef(3, (4,), "float64"), "a": FileRef("/link.npy")},
        outputs={
            "y": ArenaOut(ArenaRef(4, (4,), "float64")),
            "z": ArenaOut(),
            "b": FileOut("/out.npy"),
        },
    )

    assert ArrayUse.of(spec, ["/in.npy"], ["/out.npy"]) == use(
        reads=(3, "/in.npy"), writes=(4, "/out.npy")
    )


@given(st.lists(uses, max_size=6), st.data())
def test_it_agrees_with_the_comparison_of_all_pairs(
    jobs: list[ArrayUse], data: st.DataObject
) -> None:
    made = order(*jobs)
    alive = dict(enumerate(jobs, 1))
    if jobs:
        ended = data.draw(st.sampled_from(sorted(alive)))
        made.remove(ended)
        del alive[ended]

    for number, job in alive.items():
        others = [other for n, other in alive.items() if n != number]
        conflicts = any(
            job.reads & other.writes or job.writes & (other.reads | other.writes)
            for other in others
        )
        assert made.may_overtake(number) == (not conflicts)
