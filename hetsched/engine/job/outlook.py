"""How long a running job still needs, for the rule about small jobs. Pure."""

from __future__ import annotations

from hetsched.engine.concurrency.small_job_rule import Outlook
from hetsched.engine.job.job_record import JobRecord
from hetsched.engine.job.states import Attempt, Computing, Filling


def outlook(record: JobRecord, now: float) -> Outlook | None:
    """Return the outlook of a job; None if nothing may run beside it, or nothing is known.

    Nothing runs beside explicit measurements, iterations or a core team (they wait for the slowest
    core) or devices with a virtual clock; nor while kernels are made, which takes up to a minute.
    """
    state = record.state
    if not isinstance(state, Computing | Filling) or record.iterations is not None:
        return None
    attempt = state.attempt
    infos = [attempt.infos[device] for device in attempt.assignments]
    if record.settings.job.measure or any(i.members or i.clock == "virtual" for i in infos):
        return None
    if not isinstance(state, Computing):
        return _planned(record.settings.number, attempt)
    dispatcher = state.computation.dispatcher
    remaining = dispatcher.remaining_seconds(now)
    if remaining is None:
        return None
    cores = {info.name for info in infos if info.is_shareable}
    paces = [pace for name, pace in dispatcher.unit_seconds(now).items() if name in cores]
    busy = dispatcher.busy_devices()
    return Outlook(record.settings.number, remaining, busy, max(paces, default=None))


def _planned(number: int, attempt: Attempt) -> Outlook | None:
    """Return the outlook before the first chunk."""
    seconds = attempt.plan.predicted_seconds
    if seconds is None:
        return None
    paces = [a.pace for d, a in attempt.assignments.items() if attempt.infos[d].is_shareable]
    known = [pace for pace in paces if pace is not None]
    return Outlook(number, seconds, attempt.assignments.keys(), max(known, default=None))
