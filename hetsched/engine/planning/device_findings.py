"""What one job finds out about kernels, variants and memory of devices, for later plans."""

from __future__ import annotations

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.job import commands as do
from hetsched.engine.planning.planning_state import PlanningState


class DeviceFindings:
    """Records the findings of one job. `is_side`: it runs beside a larger job."""

    def __init__(self, job: ResolvedJob, planning: PlanningState, *, is_side: bool) -> None:
        self._job = job
        self._planning = planning
        self._is_side = is_side

    def record_kernels(self, command: do.RecordKernels) -> None:
        self._planning.record_kernels(
            self._job, command.assignments, command.infos, command.failed_variants, self._is_side
        )

    def exclude_variant(self, command: do.ExcludeVariant) -> None:
        self._planning.exclude_variant(self._job, command.info, command.variant, command.reason)

    def reduce_memory(self, command: do.ReduceMemory) -> None:
        self._planning.record_out_of_memory(command.device, command.memory)
