"""The stages before the timed one: preparing kernels, generating inputs, poisoning outputs."""

from __future__ import annotations

from hetsched.engine.job.commands import FillUnits, JobCommand, PrepareDevice, RecordKernels
from hetsched.engine.job.events import DeviceMessage, ProcessesStarted
from hetsched.engine.job.fill_and_check import FillOrder, fill_orders, helpers
from hetsched.engine.job.job_record import JobRecord, progress
from hetsched.engine.job.stages import computing, deadlines, iterating
from hetsched.engine.job.states import (
    Attempt,
    Filling,
    PendingAnswers,
    Preparing,
    ReloadingResidents,
)


def begin(
    record: JobRecord, attempt: Attempt, event: ProcessesStarted, now: float
) -> list[JobCommand]:
    """Prepare every device; send chunks at once if kernels are cached and nothing is filled."""
    attempt.infos.update(event.infos)
    attempt.live.update(attempt.assignments)
    orders = _fill_orders(record, attempt)
    is_quick = event.kernels_cached and not orders and record.iterations is None
    record.state = Preparing(attempt, orders, PendingAnswers(attempt.assignments, now))
    commands = progress(record, record.state, now)
    commands += _prepare(attempt, answer=not is_quick)
    if is_quick:
        return commands + computing.begin(record, attempt, now)
    return commands + deadlines.set_first(record, now, record.settings.deadlines.prepare)


def _fill_orders(record: JobRecord, attempt: Attempt) -> list[FillOrder]:
    if record.inputs_filled:
        return []
    job, spec = record.settings.job, record.settings.spec
    if not spec.verify and not job.generate:
        return []
    poisoned = [
        array.name
        for array in job.specs
        if spec.verify and array.is_output and array.name not in job.outputs
    ]
    devices = helpers([attempt.infos[name] for name in attempt.assignments])
    return fill_orders(job, devices, spec.seed, poisoned)


def _prepare(attempt: Attempt, *, answer: bool) -> list[JobCommand]:
    """Prepare the devices, those with a link first.

    Once cores compute, the engine's thread may have to wait for one of them.
    """
    devices = sorted(attempt.assignments, key=lambda device: not attempt.infos[device].link)
    return [PrepareDevice(attempt.id, attempt.to_prepare(device), answer) for device in devices]


def on_prepared(
    record: JobRecord, state: Preparing, event: DeviceMessage, now: float
) -> list[JobCommand]:
    attempt = state.attempt
    attempt.prepared.add(event.device)
    state.pending.answered(event.device, now)
    if state.pending:
        return []
    kernels = RecordKernels(
        tuple(attempt.assignments.values()), attempt.infos, frozenset(attempt.failed_variants)
    )
    if not state.fill_orders:
        return [kernels, *_begin_timed(record, attempt, now)]
    devices = [order.device for order in state.fill_orders]
    record.state = Filling(attempt, PendingAnswers(devices, now))
    fill = [FillUnits(attempt.id, order) for order in state.fill_orders]
    commands = [kernels, *progress(record, record.state, now, force=True), *fill]
    return commands + deadlines.set_first(record, now, record.settings.deadlines.fill)


def on_filled(
    record: JobRecord, state: Filling, event: DeviceMessage, now: float
) -> list[JobCommand]:
    state.pending.answered(event.device, now)
    if state.pending:
        return []
    attempt = state.attempt
    record.inputs_filled = True
    if not any(array.role == "resident" for array in record.settings.job.generate):
        return _begin_timed(record, attempt, now)
    record.state = ReloadingResidents(attempt, PendingAnswers(attempt.assignments, now))
    commands = _prepare(attempt, answer=True)
    return commands + deadlines.set_first(record, now, record.settings.deadlines.prepare)


def on_reloaded(
    record: JobRecord, state: ReloadingResidents, event: DeviceMessage, now: float
) -> list[JobCommand]:
    state.pending.answered(event.device, now)
    return [] if state.pending else _begin_timed(record, state.attempt, now)


def _begin_timed(record: JobRecord, attempt: Attempt, now: float) -> list[JobCommand]:
    if record.iterations is None:
        return computing.begin(record, attempt, now)
    return iterating.begin(record, attempt, now)
