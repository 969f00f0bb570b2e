"""Devices that are lost or report an error: what it costs their job.

A device whose process keeps dying, or whose kernel doesn't run, is no longer used; the job fails
when no other remains.
"""

from __future__ import annotations

from collections.abc import Collection

from hetsched import errors
from hetsched.device import DeviceInfo
from hetsched.engine.job.commands import (
    ExcludeVariant,
    JobCommand,
    LogMessage,
    RecordFailure,
    ReduceMemory,
)
from hetsched.engine.job.events import DeviceExcluded, DeviceMessage, DevicesLost
from hetsched.engine.job.job_record import JobRecord
from hetsched.engine.job.retries.device_failures import names
from hetsched.engine.job.stages import deadlines
from hetsched.engine.job.stages.stopping import start_over, stop
from hetsched.engine.job.states import (
    Attempt,
    Computing,
    DeviceStage,
    Fail,
    Iterating,
    JobStage,
    Preparing,
    ReloadingResidents,
)
from hetsched.transport import device_messages

KERNEL_STAGES = (Preparing, ReloadingResidents, Computing, Iterating)
"""Stages in which a device fails because of its kernel, not because of data or the workload."""


def on_loss(
    record: JobRecord, state: DeviceStage, event: DevicesLost, now: float
) -> list[JobCommand]:
    """Start the job over after the loss of an assigned device, outside of computing."""
    attempt = state.attempt
    if attempt.assignments.keys().isdisjoint(event.devices):
        return []
    failures = record_loss(record, attempt, event)
    return failures + start_over(record, attempt, event.reason, now)


def record_loss(record: JobRecord, attempt: Attempt, event: DevicesLost) -> list[JobCommand]:
    """Record the loss of assigned devices, and which of them may have caused it."""
    busy = [device for device in deadlines.device_waits(record) if device in attempt.assignments]
    record.failures.abandoned = event.abandoned
    record.failures.culprits.update(event.culprits)
    responsible = record.failures.responsible(event.devices, busy)
    record.failures.culprits.difference_update(event.devices)
    overdue = record.failures.overdue.intersection(event.devices)
    record.failures.overdue -= overdue
    kernels = {_running_variant(record, attempt, device) for device in responsible}
    attempt.remove(event.devices)
    record.note(loss_note(event, is_iterative=record.iterations is not None))
    if not responsible or not event.counts:
        return []
    finished = {device: _finished(record, attempt, device) for device in responsible}
    commands: list[JobCommand] = [
        RecordFailure(
            device,
            event.reason,
            record.failures.has_progressed(device, chunks),
            is_death=device not in overdue,
        )
        for device, chunks in finished.items()
    ]
    record.failures.record_death(finished, event.reason)
    record.retries = record.retries.with_death()
    return commands + _leave_race(record, attempt, responsible[0], kernels, event.reason)


def _finished(record: JobRecord, attempt: Attempt, device: str) -> int:
    """Return how many chunks, or iterations, `device` has finished."""
    if record.iterations is not None:
        return record.iterations.reported
    return len(attempt.times.get(device, ()))


def _running_variant(record: JobRecord, attempt: Attempt, device: str) -> str:
    """Return the variant with which `device` computes a chunk; "" if it doesn't."""
    if not isinstance(record.state, Computing) or device not in attempt.assignments:
        return ""
    kernel = record.state.computation.running_kernel(device)
    return "" if kernel is None else attempt.assignments[device].variants[kernel]


def _leave_race(
    record: JobRecord, attempt: Attempt, device: str, running: Collection[str], reason: str
) -> list[JobCommand]:
    """Exclude the variant that ran when a process died, if another one can take its place.

    `running`: the variants that the devices that may have caused it were running.
    """
    (variant, *others) = running
    if not variant or others:
        return []
    if len(set(attempt.assignments[device].variants) - attempt.failed_variants) < 2:
        return []
    attempt.failed_variants.add(variant)
    return _exclude_variant(record, attempt.infos[device], variant, f"its process died, {reason}")


def loss_note(event: DevicesLost, *, is_iterative: bool = False) -> str:
    """Return the note for a job's report about a device process that died."""
    lost = names(event.devices)
    if is_iterative:
        return f"the process of {lost} died, {event.reason}: the iteration was repeated"
    return f"the process of {lost} died, {event.reason}: its unfinished chunks ran again"


def on_excluded(
    record: JobRecord, state: JobStage, event: DeviceExcluded, now: float
) -> list[JobCommand]:
    """Use the device no longer, once it is lost or the job starts over."""
    record.failures.excluded.setdefault(event.device, event.reason)
    return []


def on_excluded_at_work(
    record: JobRecord, state: Computing | Iterating, event: DeviceExcluded, now: float
) -> list[JobCommand]:
    """Don't use the device when it comes back; replan if no other is assigned."""
    attempt = state.attempt
    record.failures.excluded.setdefault(event.device, event.reason)
    if attempt.live or not record.failures.excludes_all(attempt.assignments):
        return []
    return start_over(record, attempt, event.reason, now)


def on_command_failed(
    record: JobRecord, state: DeviceStage, event: DeviceMessage, now: float
) -> list[JobCommand]:
    """Start over with another plan if that may avoid the device's error; else fail the job."""
    failure = event.message
    assert isinstance(failure, device_messages.CommandFailed)
    attempt, device = state.attempt, event.device
    assignment = attempt.assignments[device]
    reason = failure.error.message
    was_preparing = failure.chunk is None and device not in attempt.prepared
    if failure.cause == "variant" and was_preparing:
        commands = _exclude_variant(record, attempt.infos[device], assignment.variant, reason)
        if device not in record.failures.without_variant:  # several missing libraries count once
            record.failures.without_variant.add(device)
            commands.append(RecordFailure(device, reason))
        return commands + start_over(record, attempt, reason, now)
    if failure.cause == "memory":
        return [
            ReduceMemory(device, assignment.slot_memory),
            *start_over(record, attempt, reason, now),
        ]
    if failure.cause == "fault":  # the process ends; its loss is the next event
        record.failures.culprits.add(device)
        return []
    is_kernel = failure.cause in ("kernel", "variant")
    if failure.error.code == errors.DataError.code:  # it would fail elsewhere, too
        is_kernel = False
    if is_kernel and _may_run_elsewhere(record, state, device):
        return _run_elsewhere(record, attempt, device, reason, now)
    return stop(record, attempt, Fail(errors.from_record(failure.error)), now)


def on_variant_failed(
    record: JobRecord, state: DeviceStage, event: DeviceMessage, now: float
) -> list[JobCommand]:
    """Exclude a variant that doesn't work; another one computes its chunks."""
    failure = event.message
    assert isinstance(failure, device_messages.VariantFailed)
    if failure.variant in state.attempt.failed_variants:  # on another core
        return []
    info = state.attempt.infos[event.device]
    state.attempt.failed_variants.add(failure.variant)
    return _exclude_variant(record, info, failure.variant, failure.error.message)


def _exclude_variant(
    record: JobRecord, info: DeviceInfo, variant: str, reason: str
) -> list[JobCommand]:
    text = f"{info.name}: variant {variant} can't be used: {reason}"
    record.note(text)
    return [LogMessage("warning", text), ExcludeVariant(info, variant, reason)]


def _may_run_elsewhere(record: JobRecord, state: DeviceStage, device: str) -> bool:
    """Return whether the kernel of another kind of device may succeed.

    The variants of a device with a link, such as a GPU, differ from those of the cores. A kernel
    that fails on a core would fail on all of them.
    """
    job = record.settings.job
    others = [other for other in record.failures.remaining(job.devices) if other != device]
    is_linked = state.attempt.infos[device].link
    may_depend = isinstance(state, KERNEL_STAGES) and not job.measure
    return is_linked and bool(others) and may_depend


def _run_elsewhere(
    record: JobRecord, attempt: Attempt, device: str, reason: str, now: float
) -> list[JobCommand]:
    text = f"{device} takes no part in this job: {reason}"
    record.note(text)
    record.failures.excluded[device] = reason
    return [
        LogMessage("warning", text),
        RecordFailure(device, reason),
        *start_over(record, attempt, reason, now),
    ]
