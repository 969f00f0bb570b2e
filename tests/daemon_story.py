"""One core of the daemon, and what clients, the engine and the journal do to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hetsched.daemon import commands as do
from hetsched.daemon.core import Core
from hetsched.daemon.records import DaemonInfo, Limits
from hetsched.errors import ErrorRecord, HetschedError
from hetsched.job import ArenaRef, Done, JobReport, JobSpec, JobState
from hetsched.store.journal.job_numbers import JobNumbers
from hetsched.transport import messages as say
from hetsched.transport.sockets import Peer

MIB = 1 << 20
OWNER = Peer(1000, 5)


class Story:
    """One core. Writes to the journal succeed, unless `written` says otherwise."""

    def __init__(self, numbers: JobNumbers | None = None, **limits: Any) -> None:
        self.core = Core(
            DaemonInfo(1, "0", "/x", uid=OWNER.uid),
            Limits(**limits),
            make_token=lambda: f"t{len(self.core.ledger.sessions) + 1}",
            numbers=numbers,
        )
        self.now = 100.0

    def hello(self, session: int) -> str:
        self.core.on_connect(session, OWNER)
        (answer,) = self.core.on_session_request(session, say.Hello(say.PROTOCOL, "0", 5))
        assert isinstance(answer, do.AnswerSession) and isinstance(answer.answer, say.Welcome)
        return answer.answer.token

    def ask(self, token: str, request: say.Request, number: int = 1) -> list[do.Command]:
        return self.written(self.request(token, request, number))

    def request(self, token: str, request: say.Request, number: int = 1) -> list[do.Command]:
        """Commands that follow from a request, with its writes to the journal still to be done."""
        envelope = say.Envelope(token, number, request)
        return self.core.on_request(token.encode(), OWNER, envelope, self.now)

    def written(
        self, commands: Iterable[do.Command], error: HetschedError | None = None
    ) -> list[do.Command]:
        """Commands, with what the core does once its writes to the journal are done."""
        others: list[do.Command] = []
        for command in commands:
            if not isinstance(command, do.WriteJournal):
                others.append(command)
            elif command.then is not None:
                others += self.written(self.core.on_written(command.then, error, self.now))
        return others

    def submit(self, token: str, spec: JobSpec | None = None, follow: bool = True) -> int:
        """The ticket of an accepted job, whose number is the same."""
        wanted = self.ask(token, say.Submit(spec or JobSpec(workload="w", params={}), follow))
        (start,) = [command for command in wanted if isinstance(command, do.SubmitJob)]
        assert start.ticket == start.number
        self.written(self.core.on_engine_reply(start.ticket, start.number, self.now))
        return start.ticket

    def done(self, ticket: int, *segments: int, size: int = MIB) -> list[do.Command]:
        results = {f"r{segment}": ArenaRef(segment, (1,), "u1") for segment in segments}
        state = Done(ticket, report(ticket), results)
        sizes = dict.fromkeys(segments, size)
        return self.written(self.core.on_job_state(ticket, state, sizes, self.now))

    def state(self, state: JobState) -> list[do.Command]:
        return self.written(self.core.on_job_state(state.job, state, {}, self.now))


def report(job: int) -> JobReport:
    return JobReport(job=job, state="done", workload="w", load=1)


def refused(commands: list[do.Command]) -> ErrorRecord:
    (command,) = commands
    answer = command.reply.answer if isinstance(command, do.SendReply) else command.answer  # type: ignore[union-attr]
    assert isinstance(answer, say.Refused)
    return answer.error


def states(commands: list[do.Command]) -> list[JobState]:
    answers = [command.reply.answer for command in commands if isinstance(command, do.SendReply)]
    return [answer.state for answer in answers if isinstance(answer, say.State)]
