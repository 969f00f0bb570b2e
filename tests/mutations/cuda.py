"""Waits and events taken out of the CUDA device, one by one, on the fake runtime."""

from mutations.pipeline import PIPELINE, always
from mutations.runner import Mutation

CUDA, FLIGHT = "devices/cuda/device.py", "devices/cuda/chunk_flight.py"
CUDA_JOB = "devices/cuda/job.py"
BEYOND = (
    "tests/devices/test_devices_cuda.py::test_a_slot_beyond_the_memory_set_aside_is_our_bug",
)

MUTATIONS = [
    always(PIPELINE, "while needs_idle and", "while False and", "cuda_installments"),
    always(
        CUDA,
        "            self._h2d.wait(previous.events.out_end)\n",
        "            pass\n",
        "cuda_ring",
        "cuda_update",
    ),
    always(CUDA, "if flight.chunk.barrier and len", "if False and len", "cuda_barrier_times"),
    always(CUDA, "            self._compute.wait(events.in_end)\n", "", "cuda_ring"),
    always(CUDA, "            self._d2h.wait(flight.events.compute_end)\n", "", "cuda_ring"),
    always(FLIGHT, "            _wait_for_copy_in(previous)\n", "", "cuda_files"),
    always(CUDA, "previous.land(job, self._preparer)", "pass", "cuda_late_files"),
    always(FLIGHT, "        block_until(self.events.out_end)\n", "", "cuda_ring", "cuda_files"),
    always(CUDA, "        self._runtime.synchronize()\n", "", "cuda_forgotten"),
    Mutation(CUDA_JOB, "slot.offset < 0 or end > limit or", "", BEYOND),
]
