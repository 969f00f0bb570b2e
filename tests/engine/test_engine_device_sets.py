"""Sets of devices through the engine's planning and learning: models.db knows the co-runners."""

from __future__ import annotations

from toy_loop import ToyLoop

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.memory import MemoryDemand

LOAD = 400
GPU = DeviceInfo(name="gpu0", kind="cuda", identity="g", link=True, engines=0)
CORES = [DeviceInfo(name=f"cpu{i}", kind="cpu", identity="c") for i in range(2)]
UNIT = {"gpu0": 0.5e-3, "cpu0": 7.26e-3, "cpu1": 7.26e-3}
"""Seconds per unit alone."""
GPU_KEPT = (1.0, 0.87, 0.75)
"""The GPU's pace beside 0, 1 and 2 busy cores."""
DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)


class Machine(ToyLoop):
    """A GPU that cores slow down."""

    def __init__(self) -> None:
        super().__init__(LOAD, [GPU, *CORES], demand=DEMAND)

    def run(self) -> dict[str, int]:
        """Plan, run and learn; return the shares."""
        plan = self.plan()
        busy = sum(assignment.device != "gpu0" for assignment in plan.assignments)
        runs = {}
        for assignment in plan.assignments:
            kept = GPU_KEPT[busy] if assignment.device == "gpu0" else 1.0
            pace, now, chunks = UNIT[assignment.device] / kept, 0.0, []
            for chunk in assignment.chunks:
                copies = 0.1 * chunk.count * pace if assignment.device == "gpu0" else 0.0
                start, end = now + copies, now + chunk.count * pace - copies
                copy_in, copy_out = (now, start), (end, end + copies)
                times = ChunkTimes(compute=(start, end))
                if copies:
                    times = ChunkTimes(copy_in=copy_in, compute=(start, end), copy_out=copy_out)
                chunks.append((chunk.count, times))
                now = end + copies
            info = self.info(assignment.device)
            runs[assignment.device] = DeviceRun(assignment, info, tuple(chunks))
        self.learn(plan, runs)
        return {assignment.device: assignment.plan.share for assignment in plan.assignments}


def test_a_gpu_that_cores_slow_down_does_the_job_alone_in_the_end() -> None:
    machine = Machine()

    shares = [machine.run() for _ in range(16)]

    assert set(shares[2]) == {"gpu0", "cpu0", "cpu1"}
    assert shares[-1] == {"gpu0": LOAD}


def test_models_db_has_the_measurements_by_co_runners() -> None:
    machine = Machine()
    for _ in range(16):
        machine.run()

    keys, seconds = machine.state.store.keys(), {}
    for key in keys:
        model = machine.state.store.load(key)
        if key.device.startswith("gpu0") and model is not None:
            seconds[key.co_runners] = float(model.compute.time(100)) / (80 * UNIT["gpu0"])

    assert seconds["all"] > 1.3 > 1.02 > seconds["none"] > 0.98


def test_a_new_engine_knows_the_best_set() -> None:
    machine = Machine()
    for _ in range(16):
        machine.run()
    machine.state.plans.clear()

    assert machine.run() == {"gpu0": LOAD}
