"""The plan of a job without running it: no process is started, no file created."""

from __future__ import annotations

import contextlib

import msgspec

from hetsched import paths
from hetsched.config import Config
from hetsched.devices.probe import probe
from hetsched.engine.admission.resolve import MachineLimits, resolve
from hetsched.engine.planning.next_plan import next_plan
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.explain import Explanation
from hetsched.job import JobSpec
from hetsched.planner.analysis.explanation import ExplainedJob, explain_job
from hetsched.store.models.model_store import ModelStore
from hetsched.transport.machine_limits import machine_memory, resolve_size
from hetsched.units import parse_size


def preview(spec: JobSpec, config: Config) -> Explanation:
    """Explain the plan of a job without running it, as the engine would plan its first job.

    Raises
    ------
    UsageError, DataError, InputMissing, Unavailable, ConfigError
        As raised by the engine.
    """
    machine = probe(config)
    infos = [info for process in machine.processes for info in process.devices]
    unstarted = {
        info.name for process in machine.processes if process.lazy for info in process.devices
    }
    arena_limit = resolve_size(config.arena.limit, machine_memory(), "arena.limit")
    with contextlib.ExitStack() as stack:
        limits = MachineLimits(infos, machine.absent, arena_limit)
        job = resolve(spec, limits, with_outputs=False)
        stack.callback(job.close)
        store = ModelStore(paths.models_path(), copy=True)
        stack.callback(store.close)
        default = None if config.memory_limit is None else parse_size(config.memory_limit)
        selected = [info for info in infos if info.name in job.devices]
        state = PlanningState(store, machine=lambda: infos)
        plan = next_plan(job, selected, state, spec.memory_limit or default, unstarted)
        params = msgspec.to_builtins(job.params)
        subject = ExplainedJob(
            None, "planned", job.workload.name, job.load, params, tuple(job.notes)
        )
        return explain_job(subject, plan, cache=state.plan_cache)
