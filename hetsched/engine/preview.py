"""The plan of a job without running it: `hetsched plan`."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from hetsched import paths
from hetsched.config import Config, located
from hetsched.devices.probe import probe
from hetsched.engine.admission.check import MachineLimits, resolve
from hetsched.engine.admission.resolved_job import declared_demand, plug_in
from hetsched.engine.planning import PlanningState, first_plan, next_plan
from hetsched.engine.run.report import explain_iterations, subject_of
from hetsched.errors import UsageError
from hetsched.explain import Explanation, IterationHistory
from hetsched.job import JobSpec
from hetsched.machine_limits import machine_memory, resolve_size
from hetsched.memory import MemoryDemand
from hetsched.planner.explanation import explain_job
from hetsched.planner.job_planner import plan_job
from hetsched.planner.totals import PlanCache
from hetsched.simulate.profile import ProfiledLoad, machine_for
from hetsched.store.model_store import ModelStore
from hetsched.workload.protocol import array_bytes


def preview(spec: JobSpec, config: Config, source: str) -> Explanation:
    """Explain the plan of a job as the engine would plan its first one.

    `source`: of the configuration, or a machine profile with devices whose costs are known.
    """
    if config.load is not None:
        return _on_profile(spec, config, source)
    with located(source):
        machine = probe(config)
    infos = [process.device for process in machine.processes]
    unstarted = {process.device.name for process in machine.processes if process.lazy}
    arena_limit = resolve_size(config.arena.limit, machine_memory(), "arena.limit")
    with contextlib.ExitStack() as stack:
        limits = MachineLimits(infos, machine.absent, arena_limit, config.memory_limit)
        job = resolve(spec, limits)
        stack.callback(job.close)
        store = ModelStore(paths.models_path(), read_only=True)
        stack.callback(store.close)
        selected = [info for info in infos if info.name in job.devices]
        state = PlanningState(store, machine=lambda: infos)
        if job.iterative is not None:
            plan, _ = first_plan(job, spec, selected, state)
            devices = tuple(assignment.device for assignment in plan.assignments)
            return explain_iterations(subject_of(job), plan, IterationHistory(devices=devices))
        plan = next_plan(job, selected, state, unstarted)
        return explain_job(subject_of(job), plan, cache=state.plan_cache)


def _on_profile(spec: JobSpec, config: Config, source: str) -> Explanation:
    nothing = MemoryDemand(input_bytes=0, work_bytes=0, output_bytes=0)
    unit = ProfiledLoad(1, 1.0, 1.0, 1.0, lambda kind: nothing)
    infos = [device.info for device in machine_for(config, source, unit).devices]
    arena_limit = resolve_size(config.arena.limit, machine_memory(), "arena.limit")
    limits = MachineLimits(infos, {}, arena_limit, config.memory_limit)
    with contextlib.closing(resolve(spec, limits)) as job:
        if job.iterative is not None:
            raise UsageError(
                f"{job.workload.name} is iterative: a machine profile has no costs of iterations;"
                " plan it with a configuration"
            )
        with plug_in(job.workload.name, "flops"):
            flops = float(job.workload.flops(job.params, 1))
        split = [spec for spec in job.specs if not spec.is_whole]
        load = ProfiledLoad(
            job.load,
            sum(array_bytes(spec) for spec in split if spec.is_input),
            sum(array_bytes(spec) for spec in split if spec.is_output),
            flops,
            lambda kind: declared_demand(job.workload, job.params, kind),
        )
        machine = machine_for(config, source, load, job.memory_limit)
        candidates = [
            replace(candidate, schedule=job.schedule)
            for candidate in machine.candidates()
            if candidate.info.name in job.devices
        ]
        cache = PlanCache()
        plan = plan_job(job.load, candidates, cache=cache)
        return explain_job(subject_of(job), plan, cache=cache)
