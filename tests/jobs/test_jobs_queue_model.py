"""Random histories of the queue against a model: a dict of jobs and a sort."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hetsched.job import Condition, Dependency, JobSpec, Outcome
from hetsched.jobs.queue import Change, JobQueue
from hetsched.jobs.table import JobRecord

CONDITIONS: list[Condition] = ["ok", "any", "fail"]


@dataclass
class ModelJob:
    priority: int
    age: int
    held: bool
    after: list[tuple[int, Condition]]
    deadline: float | None
    retries: int
    state: str = "waiting"
    failures: list[int] = field(default_factory=list)


def is_met(state: str, condition: Condition) -> bool:
    return condition == "any" or (condition == "ok") == (state == "done")


class QueueMachine(RuleBasedStateMachine):
    """The queue must agree with `model` after every event."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = JobQueue()
        self.jobs: dict[int, JobRecord] = {}
        self.model: dict[int, ModelJob] = {}
        self.now = 0.0
        self.age = 0

    def numbers(self, *states: str) -> list[int]:
        return [number for number, job in self.model.items() if job.state in states]

    def settle(self) -> set[int]:
        """Fail the jobs of the model that can't run any more; return them."""
        lost: set[int] = set()
        is_changed = True
        while is_changed:
            is_changed = False
            for number in self.numbers("waiting"):
                states = [
                    (self.model[n].state, condition) for n, condition in self.model[number].after
                ]
                if any(s in ENDED and not is_met(s, c) for s, c in states):
                    self.model[number].state = "failed"
                    lost.add(number)
                    is_changed = True
        return lost

    def expect(self, changes: list[Change], others: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        failed = [
            job.number for job, error in changes if error is not None and job not in self.queue
        ]
        assert len(failed) == len(set(failed))
        assert set(failed) == self.settle() | others

    @rule(
        data=st.data(),
        priority=st.integers(-2, 2),
        held=st.booleans(),
        seconds=st.none() | st.floats(0.5, 10),
        retries=st.integers(0, 2),
    )
    def submit(
        self, data: st.DataObject, priority: int, held: bool, seconds: float | None, retries: int
    ) -> None:
        after: list[tuple[int, Condition]] = []
        if self.model:
            dependency = st.tuples(st.sampled_from(list(self.model)), st.sampled_from(CONDITIONS))
            after = data.draw(st.lists(dependency, max_size=3))
        deadline = None if seconds is None else self.now + seconds
        number = len(self.model) + 1
        spec = JobSpec(
            workload="fft",
            params={},
            priority=priority,
            hold=held,
            deadline=deadline,
            retries=retries,
            after=tuple(Dependency(*one) for one in after),
        )
        self.age += 1
        self.model[number] = ModelJob(priority, self.age, held, after, deadline, retries)

        self.jobs[number] = JobRecord(number, spec)
        self.expect(self.queue.add(self.jobs[number], self.now))

    @precondition(lambda self: self.numbers("waiting"))
    @rule(data=st.data(), held=st.booleans())
    def hold_or_release(self, data: st.DataObject, held: bool) -> None:
        number = data.draw(st.sampled_from(self.numbers("waiting")))
        is_changed = self.model[number].held != held
        self.model[number].held = held

        assert self.queue.hold(self.jobs[number], held) == is_changed

    @precondition(lambda self: self.numbers("waiting"))
    @rule(data=st.data(), priority=st.integers(-2, 2))
    def prioritize(self, data: st.DataObject, priority: int) -> None:
        number = data.draw(st.sampled_from(self.numbers("waiting")))
        is_changed = self.model[number].priority != priority
        self.model[number].priority = priority

        assert self.queue.prioritize(self.jobs[number], priority) == is_changed

    @precondition(lambda self: self.line())
    @rule(first=st.booleans(), data=st.data())
    def start(self, first: bool, data: st.DataObject) -> None:
        number = self.line()[0] if first else data.draw(st.sampled_from(self.line()))
        self.model[number].state = "running"

        self.queue.start(self.jobs[number])

    @precondition(lambda self: self.numbers("running"))
    @rule(data=st.data(), code=st.sampled_from([0, 1, 65, 74, 130]))
    def end(self, data: st.DataObject, code: int) -> None:
        number = data.draw(st.sampled_from(self.numbers("running")))
        job = self.model[number]
        if code in (1, 74) and len(job.failures) < job.retries:
            job.failures.append(code)
            job.state = "waiting"
            self.age += 1
            job.age = self.age
            assert self.queue.requeue(self.jobs[number], code)
            return
        assert code == 0 or not self.queue.requeue(self.jobs[number], code)
        outcomes: dict[int, Outcome] = {0: "done", 130: "cancelled"}
        job.state = outcome = outcomes.get(code, "failed")

        self.expect(self.queue.end(self.jobs[number], outcome))

    @precondition(lambda self: self.numbers("waiting", "running"))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.numbers("waiting", "running")))
        self.model[number].state = "cancelled"

        self.expect(self.queue.end(self.jobs[number], "cancelled"))

    @rule(seconds=st.floats(0, 5))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        late: set[int] = set()
        for number in sorted(
            self.numbers("waiting", "running"), key=lambda n: self.model[n].deadline or 0
        ):
            job = self.model[number]
            if job.deadline is None or job.deadline > self.now:
                continue
            if job.state == "running":
                job.retries = 0
            elif job.state == "waiting":
                job.state = "failed"
                late |= {number} | self.settle()

        self.expect(self.queue.expire(self.now), late)

    def line(self) -> list[int]:
        ready = [
            number
            for number in self.numbers("waiting")
            if not self.model[number].held
            and all(self.model[n].state in ENDED for n, _ in self.model[number].after)
        ]
        return sorted(ready, key=lambda n: (-self.model[n].priority, self.model[n].age))

    @invariant()
    def the_line_is_the_models(self) -> None:
        assert [job.number for job in self.queue.ready()] == self.line()
        first = self.queue.first()
        assert (None if first is None else first.number) == next(iter(self.line()), None)

    @invariant()
    def the_jobs_are_the_models(self) -> None:
        assert [job.number for job in self.queue.waiting()] == self.numbers("waiting")
        assert len(self.queue) == len(self.numbers("waiting", "running"))

    @invariant()
    def every_waiting_job_has_a_reason(self) -> None:
        line = self.line()
        for number in self.numbers("waiting"):
            position = self.queue.position(self.jobs[number])
            if number in line:
                assert position.reason == ("resources" if number == line[0] else "priority")
                assert position.ahead == len(self.numbers("running")) + line.index(number)
            else:
                is_held = self.model[number].held
                assert position.reason.startswith("held" if is_held else "after ")

    @invariant()
    def a_deadline_is_watched_while_its_job_lives(self) -> None:
        deadlines = [
            job.deadline
            for job in self.model.values()
            if job.state in ("waiting", "running")
            and job.deadline is not None
            and job.deadline > self.now
        ]
        assert self.queue.next_deadline() == min(deadlines, default=None)


ENDED = ("done", "failed", "cancelled")

TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(stateful_step_count=40)
