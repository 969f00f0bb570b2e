"""Requests to the daemon and what becomes of its answers, all on the connection's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hetsched.client.job import Job, Listener
from hetsched.errors import HetschedError, ProtocolError, TryAgain, from_record
from hetsched.job import JobState, ended
from hetsched.transport.messages import (
    Accepted,
    Answer,
    Events,
    JobEvent,
    Refused,
    Request,
    State,
    Submit,
)

if TYPE_CHECKING:
    from hetsched.client.memory import ArrayRenewal  # which needs NumPy

log = logging.getLogger(__name__)

OnEvent = Callable[[int, JobState], None]


class OpenRequest:
    """A request with one answer. `answer`: its Future, with the daemon's error if it refuses."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.answer: Future[Any] = Future()

    def on_answer(self, answer: Answer) -> bool:
        """Handle an answer; return True if it was the last."""
        if isinstance(answer, Refused):
            self.answer.set_exception(from_record(answer.error))
        else:
            self.answer.set_result(answer)
        return True

    def on_lost(self, error: HetschedError) -> None:
        """Handle the loss of the connection: there will be no more answers."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def renew(self, numbers: Renumbering) -> bool:
        """Make `request` one for the next daemon; return False if that must wait."""
        return True


class Renumbering(dict[int, int]):
    """Numbers of this client's jobs at earlier daemons -> at the present one.

    `pending`: jobs that have been submitted again, but haven't got their number yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pending: set[int] = set()

    def renumber(self, old: int, new: int) -> None:
        self.pending.discard(old)
        if old != new:
            self[old] = new


class JobRequest(OpenRequest):
    """Submit or Follow: `answer` gets the Job once it has a number, the Job its states.

    `make_job` makes it of the number and the durability.
    """

    def __init__(
        self,
        request: Request,
        make_job: Callable[[int, str], Job],
        follow: Listener | None = None,
        renewal: ArrayRenewal | None = None,
    ) -> None:
        super().__init__(request)
        self._make_job = make_job
        self._follow = follow
        self._renewal = renewal
        self._job: Job | None = None
        self._numbers: Renumbering | None = None

    def on_answer(self, answer: Answer) -> bool:
        match answer:
            case Accepted():
                self._accept(answer.job, answer.durability)
                return False
            case State(state=state):
                job = self._job or self._accept(state.job)
                job.advance(state)
                return ended(state)
            case Refused(error=error):
                self._fail(self._refusal(from_record(error)))
            case _:
                self._fail(ProtocolError(f"unexpected answer {type(answer).__name__}"))
        return True

    def on_lost(self, error: HetschedError) -> None:
        job = self._job
        if job is None:
            self._fail(error)
        elif job.durability == "durable":
            hint = f"the job continues then, see `hetsched wait {job.id}`"
            self._fail(TryAgain(f"job {job.id} is out of reach: {error}; {hint}"))
        else:
            self._fail(TryAgain(f"job {job.id} is lost: {error}; submit it again"))

    def renew(self, numbers: Renumbering) -> bool:
        """The next daemon may know the job by its key; if not, it gets another number there.

        Jobs that run after it wait for that number.
        """
        if not isinstance(self.request, Submit):
            return True
        spec = self.request.spec
        if any(dependency.job in numbers.pending for dependency in spec.after):
            return False
        after = tuple(replace(d, job=numbers.get(d.job, d.job)) for d in spec.after)
        spec = replace(spec, after=after)
        if self._renewal is not None:
            spec = self._renewal.renew(spec)
        self.request = replace(self.request, spec=spec)
        self._numbers = numbers
        if self._job is not None:
            numbers.pending.add(self._job.id)
        return True

    def _refusal(self, error: HetschedError) -> HetschedError:
        """Return the error to report for a refusal, perhaps by the next daemon."""
        if self._renewal is None or self._renewal.is_complete:
            return error
        return TryAgain(
            "input lost: the daemon was started again, and the job's shared memory couldn't be"
            f" passed to it ({error}); submit the job again"
        )

    def _fail(self, error: HetschedError) -> None:
        self._release()
        if self._job is None:
            self.answer.set_exception(error)
            return
        if self._numbers is not None:
            self._numbers.pending.discard(self._job.id)
        self._job.lost(error)

    def _release(self) -> None:
        if self._renewal is not None:
            self._renewal.release()

    def _accept(self, ident: int, durability: str = "") -> Job:
        self._release()
        if self._job is not None:  # by the next daemon
            if self._numbers is not None:
                self._numbers.renumber(self._job.id, ident)
            self._job.renumber(ident, durability)
            return self._job
        job = self._job = self._make_job(ident, durability)
        if self._follow is not None:
            job.follow(self._follow)
        self.answer.set_result(job)
        return job


class EventFollower(OpenRequest):
    """Receives events, on the connection's thread.

    Attributes
    ----------
    lost : int
        Events that the daemon dropped since they weren't read in time.
    done : Future
        Done when all jobs have ended; its exception is the daemon's error.
    """

    def __init__(self, on_event: OnEvent, jobs: Sequence[int]) -> None:
        numbers = tuple(dict.fromkeys(jobs))
        super().__init__(Events(numbers))
        self.lost = 0
        self.done: Future[None] = self.answer
        self._on_event = on_event
        self._pending = set(numbers)
        self._is_endless = not numbers
        self._sequence = 0

    def on_answer(self, answer: Answer) -> bool:
        match answer:
            case JobEvent(sequence=sequence, state=state):
                self._advance(sequence, state)
            case Refused(error=error):
                self.done.set_exception(from_record(error))
            case _:
                self.on_lost(ProtocolError(f"unexpected answer {type(answer).__name__}"))
        return self.done.done()

    def renew(self, numbers: Renumbering) -> bool:
        """Follow the jobs at the next daemon that haven't ended; it counts anew."""
        if self._pending & numbers.pending:
            return False
        self._sequence = 0
        self._pending = {numbers.get(job, job) for job in self._pending}
        self.request = Events(() if self._is_endless else tuple(sorted(self._pending)))
        return True

    def _advance(self, sequence: int, state: JobState) -> None:
        self.lost += max(0, sequence - self._sequence - 1)
        self._sequence = sequence
        try:
            self._on_event(sequence, state)
        except Exception:
            log.exception("error in a callback for events of job %d", state.job)
        if ended(state):
            self._pending.discard(state.job)
        if not self._pending and not self._is_endless:
            self.done.set_result(None)
