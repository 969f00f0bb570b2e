"""The plan of a job without running it: no process is started, no file created."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from hetsched import paths
from hetsched.config import Config
from hetsched.device import DeviceInfo
from hetsched.devices.probe import probe
from hetsched.engine.admission.check import MachineLimits, resolve
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.first_plan import first_plan
from hetsched.engine.planning.next_plan import next_plan
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.explain import Explanation
from hetsched.explain.iterations.records import IterationHistory
from hetsched.explain.records import DeviceExplanation
from hetsched.job import JobSpec
from hetsched.machine_limits import machine_memory, resolve_size
from hetsched.planner.analysis.explanation import ExplainedJob, explain_job
from hetsched.store.model_store import ModelStore
from hetsched.units import parse_size


def preview(spec: JobSpec, config: Config) -> Explanation:
    """Explain the plan of a job without running it, as the engine would plan its first job."""
    machine = probe(config)
    infos = [process.device for process in machine.processes]
    unstarted = {process.device.name for process in machine.processes if process.lazy}
    arena_limit = resolve_size(config.arena.limit, machine_memory(), "arena.limit")
    with contextlib.ExitStack() as stack:
        limits = MachineLimits(infos, machine.absent, arena_limit)
        job = resolve(spec, limits)
        stack.callback(job.close)
        store = ModelStore(paths.models_path(), read_only=True)
        stack.callback(store.close)
        default = None if config.memory_limit is None else parse_size(config.memory_limit)
        selected = [info for info in infos if info.name in job.devices]
        state = PlanningState(store, machine=lambda: infos)
        if job.iterative is not None:
            return _first_split(job, spec, selected, state, spec.memory_limit or default)
        plan = next_plan(job, selected, state, spec.memory_limit or default, unstarted)
        params = msgspec.to_builtins(job.params)
        subject = ExplainedJob(
            None, "planned", job.workload.name, job.load, params, tuple(job.notes)
        )
        return explain_job(subject, plan, cache=state.plan_cache)


def _first_split(
    job: ResolvedJob,
    spec: JobSpec,
    infos: Sequence[DeviceInfo],
    state: PlanningState,
    memory_limit: int | None,
) -> Explanation:
    """Explain the rows with which an iterative job would begin."""
    plan = first_plan(job, spec, infos, state, memory_limit).plan
    kinds = {info.name: info.kind for info in infos}
    devices = tuple(
        DeviceExplanation(
            device=assignment.device,
            kind=kinds[assignment.device],
            variant=assignment.variant,
            planned=assignment.plan.share,
            predicted_seconds=assignment.predicted_seconds,
        )
        for assignment in plan.assignments
    )
    return Explanation(
        job=None,
        state="planned",
        workload=job.workload.name,
        params=msgspec.to_builtins(job.params),
        load=job.load,
        reasons=plan.reasons,
        devices=devices,
        notes=tuple(job.notes),
        iterations=IterationHistory(devices=tuple(device.device for device in devices)),
    )
