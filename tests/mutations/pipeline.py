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
SLOTS = "devices/slots.py"
NOTEBOOK = ("tests/device_process/test_device_process_pipeline.py",)
WORK = ("tests/devices/test_devices_real_clock.py",)
LATE = ("tests/devices/test_devices_streams.py",)
EMULATION = "tests/devices/test_devices_emulated.py"
SEEN = (
    f"{EMULATION}::test_what_an_operation_will_write_is_spoilt_from_its_start",
    f"{EMULATION}::test_of_a_source_that_changes_meanwhile_poison_is_read",
)
BEYOND = (f"{EMULATION}::test_a_slot_beyond_the_memory_is_refused",)

MUTATIONS = [
    # The host begins a chunk while another lies in its memory.
    always(PIPELINE, "while alone and", "while False and", "virtual_installments"),
    always(LAYOUT, "empty = barrier or self", "empty = self", "virtual_barriers"),
    Mutation(PIPELINE, "and len(self._flying) < self._depth", "", NOTEBOOK),
    Mutation(PIPELINE, "        while self._flying:\n", "        if self._flying:\n", NOTEBOOK),
    Mutation(PIPELINE, "self._flying.popleft()", "self._flying.pop()", NOTEBOOK),
    Mutation(SLOTS, "slot.offset < 0 or slot.offset + room > memory.size", "False", BEYOND),
    # The emulated device: each phase after the one before, each copy in after the slot is free.
    always(EMULATED, "else [before.copy_out]", "else []", "virtual_ring", "virtual_update"),
    always(EMULATED, "return [flight.copy_in]", "return []", "virtual_ring", "virtual_one_engine"),
    always(EMULATED, "None else [flight.compute]", "None else []", "virtual_ring"),
    always(EMULATED, "before is self._flights.get(self._held.id)", "False", "virtual_one_slot"),
    always(EMULATED, "behind = chunk.barrier or", "behind = False and", "virtual_installments"),
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
        "            if other.ended is None:\n                return None\n",
        "            if other.ended is None:\n                continue\n",
        "virtual_ring",
        "virtual_one_engine",
    ),
    always(
        STREAMS,
        "max(self._free[lane], head.floor)",
        "head.floor",
        "virtual_ring",
        "virtual_one_engine",
        "virtual_no_engine",
    ),
    always(VIRTUAL, "self._frontier if behind else 0.0", "0.0", "virtual_installments"),
    always(STREAMS, "time = max(time, other.ended)", "pass", "virtual_ring"),
    always(VIRTUAL, "max(self._frontier, operation.ended)", "0.0", "virtual_installments"),
    always(
        VIRTUAL, "while operation.ended is None:", "if operation.ended is None:", "virtual_ring"
    ),
    # The real clock.
    Mutation(REAL, "while not all(other.ready for other in operation.after):", "if False:", WORK),
    Mutation(REAL, "            while operation.ended is None:", "            if False:", WORK),
    Mutation(STREAMS, "if not operation.ready:", "if False:", LATE),
    # What shows that one is missing.
    Mutation(VIRTUAL, "target.reshape(-1).view(np.uint8).fill(POISON)", "pass", SEEN),
    Mutation(VIRTUAL, "raw[changed] = POISON", "pass", SEEN),
]
