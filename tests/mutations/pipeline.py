"""Waits, events and slot guards taken out of the pipeline and the devices, one by one.

Most must show with every one of 20 seeds, in wrong numbers, an error or times that can't be.
"""

from mutations.runner import Mutation


def hazards(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/devices/test_devices_hazards.py::test_{name}" for name in names)


def always(file: str, original: str, replaced: str, *names: str) -> Mutation:
    """Seen with every seed."""
    return Mutation(file, original, replaced, hazards(*names), every=True)


PIPELINE, LAYOUT = "device_process/pipeline.py", "plans/slot_allocation.py"
EMULATED, STREAMS = "devices/emulated/device.py", "devices/emulated/streams.py"
VIRTUAL, REAL = "devices/emulated/virtual_clock.py", "devices/emulated/real_clock.py"
SLOTS = "devices/host_slots.py"
NOTEBOOK = ("tests/device_process/test_device_process_pipeline.py",)
WORK = ("tests/devices/test_devices_real_clock.py",)
LATE = ("tests/devices/test_devices_streams.py",)
EMULATION = "tests/devices/test_devices_emulated.py"
SEEN = (
    f"{EMULATION}::test_what_an_operation_will_write_is_poisoned_from_its_start",
    f"{EMULATION}::test_of_a_source_that_changes_meanwhile_poison_is_read",
)
BEYOND = (f"{EMULATION}::test_a_slot_beyond_the_memory_is_refused",)

MUTATIONS = [
    # The host begins a chunk while another lies in its memory.
    always(PIPELINE, "while needs_idle and", "while False and", "virtual_installments"),
    always(LAYOUT, "starts_over = barrier or self", "starts_over = self", "virtual_barriers"),
    Mutation(PIPELINE, "and len(self._in_flight) < self._depth", "", NOTEBOOK),
    Mutation(
        PIPELINE,
        "        while self._in_flight:\n            with",
        "        if self._in_flight:\n            with",
        NOTEBOOK,
    ),
    Mutation(PIPELINE, "self._in_flight.popleft()", "self._in_flight.pop()", NOTEBOOK),
    Mutation(SLOTS, "slot.offset < 0 or end > memory.size", "False", BEYOND),
    # The emulated device: each phase after the one before, each copy in after the slot is free.
    always(EMULATED, "else [previous.copy_out]", "else []", "virtual_ring", "virtual_update"),
    always(EMULATED, "return [issued.copy_in]", "return []", "virtual_ring", "virtual_one_engine"),
    always(EMULATED, "None else [issued.compute]", "None else []", "virtual_ring"),
    always(
        EMULATED, "previous is self._chunks.get(self._deferred.id)", "False", "virtual_one_slot"
    ),
    always(
        EMULATED, "after_wait = chunk.barrier or", "after_wait = False and", "virtual_installments"
    ),
    always(
        EMULATED, "for operation in reversed(operations)", "for operation in ()", "virtual_ring"
    ),
    always(
        EMULATED,
        "                if operation is not None:",
        "                if False:",
        "virtual_forgotten",
    ),
    always(
        STREAMS,
        "            if dependency.ended is None:\n                return None\n",
        "            if dependency.ended is None:\n                continue\n",
        "virtual_ring",
        "virtual_one_engine",
    ),
    always(
        STREAMS,
        "max(self._free[engine], head.earliest_start)",
        "head.earliest_start",
        "virtual_ring",
        "virtual_one_engine",
        "virtual_no_engine",
    ),
    always(VIRTUAL, "self._frontier if after_wait else 0.0", "0.0", "virtual_installments"),
    always(STREAMS, "time = max(time, dependency.ended)", "pass", "virtual_ring"),
    always(VIRTUAL, "max(self._frontier, operation.ended)", "0.0", "virtual_installments"),
    always(
        VIRTUAL, "while operation.ended is None:", "if operation.ended is None:", "virtual_ring"
    ),
    # The real clock.
    Mutation(
        REAL,
        "while not all(dependency.ready for dependency in operation.after):",
        "if False:",
        WORK,
    ),
    Mutation(REAL, "            while operation.ended is None:", "            if False:", WORK),
    Mutation(STREAMS, "if not operation.ready:", "if False:", LATE),
    # What shows that one is missing.
    Mutation(VIRTUAL, "target.reshape(-1).view(np.uint8).fill(POISON)", "pass", SEEN),
    Mutation(VIRTUAL, "raw[changed] = POISON", "pass", SEEN),
]
