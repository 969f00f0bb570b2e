"""Waits and guards taken out of what plans cost and of who gets which chunk, one by one."""

from mutations.runner import Mutation

TIMELINE = ("tests/schedule/test_schedule_replay.py",)
BATCH = ("tests/schedule/test_schedule_batch.py",)
PLAN = ("tests/schedule/test_schedule_plan.py",)
DISPATCH = ("tests/schedule/test_schedule_stealing.py",)
WINDOWS = ("tests/schedule/test_schedule_dispatch.py",)
BOUND = ("tests/schedule/test_schedule_bound.py",)
BEST = tuple(
    f"tests/schedule/test_schedule_best.py::{name}"
    for name in (
        "test_installments_of_few_units_add_up",
        "test_an_odd_memory_is_filled_by_a_pattern",
    )
)
LAYOUT = ("tests/schedule/test_schedule_layout.py",)
LAID_OUT = ("tests/schedule/test_schedule_laid_out.py",)

ONE, MANY, FLUID = "schedule/timeline.py", "schedule/batch.py", "schedule/duplex.py"
SENDS, STEALS = "schedule/dispatch.py", "schedule/stealing.py"

MUTATIONS = [
    # A slot is used again while its chunk is still there.
    Mutation(ONE, "max(arrived, spans[index - slots][2][1])", "arrived", TIMELINE),
    Mutation(ONE, "spans[index - slots][2][1]", "spans[index - slots][1][1]", TIMELINE),
    Mutation(ONE, "if index >= slots:", "if index > slots:", TIMELINE),
    Mutation(FLUID, "lambda k: out.done > k - slots", "lambda k: True", TIMELINE),
    Mutation(FLUID, "out.done > k - slots", "compute.done > k - slots", TIMELINE),
    Mutation(MANY, "np.maximum(arrived, guard)", "arrived", BATCH),
    Mutation(MANY, "done[2] + slots, ", "done[1] + slots, ", BATCH),
    # A kernel starts before its input is there, or beside another kernel.
    Mutation(
        ONE,
        "arrived = begin_in + copy_in\n        begin = max(arrived, computed)",
        "arrived = begin_in + copy_in\n        begin = computed",
        TIMELINE,
    ),
    Mutation(
        ONE,
        "arrived = begin_in + copy_in\n        begin = max(arrived, computed)",
        "arrived = begin_in + copy_in\n        begin = arrived",
        TIMELINE,
    ),
    Mutation(
        ONE,
        "arrived = engine + copy_in\n        begin = max(arrived, computed)",
        "arrived = engine + copy_in\n        begin = computed",
        TIMELINE,
    ),
    Mutation(FLUID, "lambda k: copy_in.done > k", "lambda k: True", TIMELINE),
    Mutation(MANY, "computed = np.maximum(arrived, computed) +", "computed = computed +", BATCH),
    Mutation(MANY, "computed = np.maximum(engine, computed) +", "computed = computed +", BATCH),
    # A result is copied out before it is computed, or beside another copy.
    Mutation(ONE, "begin_out = max(computed, left)", "begin_out = left", TIMELINE),
    Mutation(ONE, "begin_out = max(computed, left)", "begin_out = computed", TIMELINE),
    Mutation(ONE, "begin = max(engine, computed)", "begin = engine", TIMELINE),
    Mutation(FLUID, "lambda k: compute.done > k", "lambda k: True", TIMELINE),
    Mutation(MANY, "np.maximum(computed, out) + copy_out", "out + copy_out", BATCH),
    Mutation(MANY, "np.maximum(engine, before) +", "engine +", BATCH),
    # Copies in both directions don't disturb each other; sub-distributions don't wait.
    Mutation(FLUID, "if both else", "if not both else", TIMELINE),
    Mutation(ONE, "now = spans[-1][2][1] if spans", "now = spans[-1][1][1] if spans", TIMELINE),
    # What doesn't fit passes.
    Mutation("schedule/plan.py", "first : first + slots]", "first : first + slots - 1]", PLAN),
    Mutation("schedule/plan.py", "len(chunks) - slots, 0", "len(chunks) - slots - 1, 0", PLAN),
    Mutation("schedule/layout.py", "self._top + size > self", "self._top > self", LAYOUT),
    Mutation("schedule/layout.py", "self._places[index][0] < size", "False", LAYOUT),
    Mutation("schedule/layout.py", "sum(rooms) > memory", "max(rooms) > memory", LAYOUT),
    Mutation("schedule/plan.py", "max(chunks[first::slots])", "chunks[first]", LAID_OUT),
    Mutation(
        "schedule/search.py", "fits(slot_sizes(found", "fits([1] or slot_sizes(found", LAID_OUT
    ),
    Mutation("schedule/assign.py", "_slots(plan, link) + 1", "_slots(plan, link)", LAID_OUT),
    # A device gets more than its window, chunks of others twice, or what is held back for ever.
    Mutation(SENDS, "len(queue.sent) < queue.window", "True", WINDOWS),
    Mutation(SENDS, "final, last=True", "final, last=final.last", DISPATCH),
    Mutation(SENDS, "final.count - kept)", "final.count)", DISPATCH),
    Mutation(SENDS, "final, count=kept)", "final, count=final.count)", DISPATCH),
    Mutation(SENDS, "max(final.count - units, 1)", "max(final.count - units, 0)", DISPATCH),
    Mutation(SENDS, "len(self.waiting) > 1 or", "len(self.waiting) > 0 or", DISPATCH),
    Mutation(STEALS, ">= WORTH * (", ">= 0 * (", DISPATCH),
    Mutation(STEALS, "(thief.pace + victim.pace)", "thief.pace", DISPATCH),
    # A bound that isn't one, and plans that aren't the best.
    Mutation(
        "schedule/bound_terms.py", "sizes = share / counts", "sizes = 2 * share / counts", BOUND
    ),
    Mutation("schedule/bound.py", "min(serial, *rings, ", "max(serial, *rings, ", BOUND),
    Mutation("schedule/bound.py", "return (2,) if room > 1 else ()", "return ()", BOUND),
    Mutation("schedule/drained.py", "fills = -(-share // device.room)", "fills = share", BOUND),
    Mutation("schedule/drained.py", "        single, least_of", "        least_of", BOUND),
    Mutation(
        "schedule/turns.py", "(device.room - rest), 1)", "(device.room - rest), slots)", BOUND
    ),
    Mutation("schedule/turns.py", "whole / slots", "whole", BOUND),
    Mutation("schedule/turns.py", "share - turns * device.room", "share", BOUND),
    Mutation("schedule/small.py", "rest + found[0]", "found[0]", BEST),
    Mutation("schedule/recipes.py", "if rest <= size", "if rest < size", BEST),
]
