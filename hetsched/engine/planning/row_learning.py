"""Learning from iterations: their times become evidence of the device's model of this kernel.

Runs in the planner's thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.next_plan import model_key
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.engine.run.iteration_log import RowEvidence
from hetsched.models.evidence.samples import Sample, is_time
from hetsched.planner.device_sets.neighbours import co_runners_in_run
from hetsched.planner.records import Assignment
from hetsched.store.models.model_store import ModelKey


def learn_rows(
    job: ResolvedJob,
    assignments: Mapping[str, Assignment],
    infos: Mapping[str, DeviceInfo],
    evidence: RowEvidence,
    state: PlanningState,
) -> None:
    """Update the models of the devices that computed iterations. The store isn't flushed.

    A device that copied has the curve "compute", too: the rest of its time is NEC's XFER_TIME.
    """
    samples: dict[str, list[Sample]] = {}
    for device, rows, seconds, compute in evidence.medians():
        if is_time(seconds):
            samples.setdefault(device, []).append(Sample("total", rows, seconds))
            if compute is not None and is_time(compute):
                samples[device].append(Sample("compute", rows, compute))
    measured = [device for device in samples if device in assignments]
    if not measured:
        return
    infos = {device: infos[device] for device in measured}
    machine = state.machine()
    co_runners = co_runners_in_run(list(infos.values()), [], machine)
    observations: list[tuple[ModelKey, list[Sample]]] = []
    for device, info in infos.items():
        for variant in state.variants.usable(job, info):
            if variant.name == assignments[device].variant:
                key = model_key(job, info, variant, co_runners[device])
                observations.append((key, samples[device]))
    state.store.observe_many(observations, time.time(), flush=False)
