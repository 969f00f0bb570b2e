"""What an engine would plan for a job, without one: nothing is started, made, or written."""

from __future__ import annotations

import contextlib

import msgspec

from hetsched import paths
from hetsched.config import Config
from hetsched.devices.probe import probe
from hetsched.engine.planning.experience import Experience
from hetsched.engine.planning.plan_and_learn import plan
from hetsched.engine.resolve import resolve
from hetsched.explain import Account
from hetsched.job import JobSpec
from hetsched.planner.analysis.explanation import Subject, account
from hetsched.store.model_store import ModelStore
from hetsched.transport.machine_limits import machine_memory, resolve_size
from hetsched.units import parse_size


def preview(spec: JobSpec, config: Config) -> Account:
    """The account of a job that isn't run, as the engine plans the first such job of its life.

    Raises
    ------
    UsageError, DataError, InputMissing, Unavailable, ConfigError
        As the engine would.
    """
    found = probe(config)
    infos = [info for process in found.processes for info in process.devices]
    asleep = {one.name for process in found.processes if process.lazy for one in process.devices}
    room = resolve_size(config.arena.limit, machine_memory(), "arena.limit")
    with contextlib.ExitStack() as stack:
        job = resolve(spec, infos, found.absent, room, make=False)
        stack.callback(job.close)
        store = ModelStore(paths.models_path(), copy=True)
        stack.callback(store.close)
        default = None if config.memory_limit is None else parse_size(config.memory_limit)
        chosen = [info for info in infos if info.name in job.devices]
        limit = spec.memory_limit or default
        experience = Experience()
        made = plan(job, chosen, store, experience, limit, asleep)
        params = msgspec.to_builtins(job.params)
        subject = Subject(None, "planned", job.workload.name, job.load, params, tuple(job.notes))
        return account(subject, made, cache=experience.plan_cache)
