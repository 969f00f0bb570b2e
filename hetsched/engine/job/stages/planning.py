"""The stages before preparation: waiting for processes, planning, starting processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hetsched.engine.job.commands import (
    AllocateArrays,
    JobCommand,
    LoadInputs,
    MakePlan,
    StartProcesses,
)
from hetsched.engine.job.events import (
    Begin,
    InputsLoaded,
    LoadFailed,
    PlanFailed,
    PlanReady,
    ProcessesSettled,
    ProcessesStarted,
)
from hetsched.engine.job.job_record import JobRecord, wait_for_processes
from hetsched.engine.job.retries.device_failures import names
from hetsched.engine.job.stages import preparing
from hetsched.engine.job.stages.ending import fail
from hetsched.engine.job.stages.stopping import start_over_unprepared
from hetsched.engine.job.states import (
    Attempt,
    DiscardingPlan,
    LoadingInputs,
    New,
    Planning,
    StartingProcesses,
    WaitingForProcesses,
)
from hetsched.errors import Unavailable


def on_begin(record: JobRecord, state: New, event: Begin, now: float) -> list[JobCommand]:
    if not record.settings.job.copied_inputs:
        return [AllocateArrays(), *wait_for_processes(record)]
    record.state = LoadingInputs()
    return [AllocateArrays(), LoadInputs()]


def on_loaded(
    record: JobRecord, state: LoadingInputs, event: InputsLoaded, now: float
) -> list[JobCommand]:
    return wait_for_processes(record) if state.error is None else fail(record, state.error)


def on_load_failed(
    record: JobRecord, state: LoadingInputs, event: LoadFailed, now: float
) -> list[JobCommand]:
    return fail(record, state.error or event.error)


def on_settled(
    record: JobRecord, state: WaitingForProcesses, event: ProcessesSettled, now: float
) -> list[JobCommand]:
    """Plan for the devices usable now."""
    record.retries = record.retries.with_attempt()
    attempts_error = record.retries.attempts_error()
    if attempts_error is not None:
        return fail(record, attempts_error)
    _note_excluded(record, event.excluded)
    record.disabled = event.disabled
    infos = tuple(info for info in event.infos if info.name not in record.failures.excluded)
    if all(info.name in event.disabled for info in infos):
        failures, absent = record.failures, {**event.absent, **_disabled(record, event)}
        no_device = failures.error() if failures.excluded else no_device_error(absent)
        return fail(record, no_device)
    starting = event.starting.difference(record.failures.excluded)
    record.state = Planning(
        event.attempt_id, {info.name: info for info in infos}, starting, event.absent
    )
    return [MakePlan(infos)]


def _disabled(record: JobRecord, event: ProcessesSettled) -> dict[str, str]:
    own = event.disabled.intersection(record.settings.job.devices)
    return dict.fromkeys(sorted(own), "disabled")


def _note_excluded(record: JobRecord, excluded: Mapping[str, str]) -> None:
    """Report devices that take no part because of failures in earlier jobs, once."""
    for device, reason in excluded.items():
        if device not in record.failures.excluded:
            record.failures.excluded[device] = reason
            record.note(f"{device}: {reason}")


def _note_restarting(record: JobRecord, starting: Collection[str]) -> None:
    """Report devices that an earlier job lost, and that may take part later."""
    restarting = [d for d in record.settings.job.devices if d in starting]
    if restarting:
        record.note(f"began without {names(restarting)}: the process is starting again")


def no_device_error(absent: Mapping[str, str]) -> Unavailable:
    """Return the error of a job without usable devices; `absent`: device -> reason."""
    reasons = _listed(absent) or "none configured"
    return Unavailable(f"no device is available for this job ({reasons})")


def _listed(absent: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in absent.items())


def on_plan(record: JobRecord, state: Planning, event: PlanReady, now: float) -> list[JobCommand]:
    assignments = {a.device: a for a in event.plan.assignments if a.chunks}
    attempt = Attempt(state.attempt_id, event.plan, state.infos, assignments)
    if record.iterations is not None and event.balance is not None:
        record.iterations.balance_with(event.balance, assignments)
    if record.latest is None:
        _note_restarting(record, state.starting)
    record.latest = attempt
    record.state = StartingProcesses(attempt)
    return [StartProcesses(tuple(assignments.values()))]


def on_plan_failed(
    record: JobRecord, state: Planning, event: PlanFailed, now: float
) -> list[JobCommand]:
    error = event.error
    if isinstance(error, Unavailable) and state.starting:
        # None of the others has a variant: a restart is no reason to fail a job.
        return wait_for_processes(record, with_restarts=True)
    if isinstance(error, Unavailable) and record.failures.excluded:
        error = record.failures.error()  # the others have no variant of this workload
    elif isinstance(error, Unavailable) and state.absent:
        error = Unavailable(f"{error}; devices not available: {_listed(state.absent)}")
    return fail(record, error)


def on_discarded_plan(
    record: JobRecord, state: DiscardingPlan, event: PlanReady | PlanFailed, now: float
) -> list[JobCommand]:
    return fail(record, state.error)


def on_started(
    record: JobRecord, state: StartingProcesses, event: ProcessesStarted, now: float
) -> list[JobCommand]:
    if not event.ready >= state.attempt.assignments.keys():
        return start_over_unprepared(record, "a device process ended while the job was planned")
    return preparing.begin(record, state.attempt, event, now)
