"""Waits and guards taken out of what plans cost and of who gets which chunk, one by one."""

from mutations.runner import Mutation

TIMELINE = ("tests/plans/test_plans_replay.py",)
BATCH = ("tests/plans/test_plans_batch.py",)
PLAN = ("tests/plans/test_plans_plan.py",)
DISPATCH = ("tests/dispatch/test_dispatch_stealing.py",)
WINDOWS = ("tests/dispatch/test_dispatch_dispatcher.py",)
BOUND = ("tests/plans/test_plans_bound.py",)
BEST = tuple(
    f"tests/plans/test_plans_best.py::{name}"
    for name in (
        "test_installments_of_few_units_add_up",
        "test_an_odd_memory_is_filled_by_a_pattern",
    )
)
LAYOUT = ("tests/plans/test_plans_layout.py",)
LAID_OUT = ("tests/plans/test_plans_laid_out.py",)

ONE, MANY, FLUID = "plans/timeline.py", "plans/batch_timeline.py", "plans/duplex_timeline.py"
QUEUE, STEALING = "dispatch/device_queue.py", "dispatch/stealing.py"

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
    Mutation("plans/device_plan.py", "first : first + slots]", "first : first + slots - 1]", PLAN),
    Mutation("plans/device_plan.py", "len(chunks) - slots, 0", "len(chunks) - slots - 1, 0", PLAN),
    Mutation("plans/slot_allocation.py", "self._top + size > self", "self._top > self", LAYOUT),
    Mutation("plans/slot_allocation.py", "self._places[index][0] < size", "False", LAYOUT),
    Mutation("plans/slot_allocation.py", "sum(rooms) > memory", "max(rooms) > memory", LAYOUT),
    Mutation("plans/device_plan.py", "max(chunks[first::slots])", "chunks[first]", LAID_OUT),
    Mutation(
        "plans/search/ring_search.py",
        "fits(slot_sizes(found",
        "fits([1] or slot_sizes(found",
        LAID_OUT,
    ),
    Mutation("planner/assignment.py", "_slots(plan, link) + 1", "_slots(plan, link)", LAID_OUT),
    # A device gets more than its window, chunks of others twice, or what is held back for ever.
    Mutation(QUEUE, "len(self.sent) < self.window", "True", WINDOWS),
    Mutation(QUEUE, "final, last=True", "final, last=final.last", DISPATCH),
    Mutation(QUEUE, "final.count - remaining)", "final.count)", DISPATCH),
    Mutation(QUEUE, "final, count=remaining)", "final, count=final.count)", DISPATCH),
    Mutation(QUEUE, "max(final.count - units, 1)", "max(final.count - units, 0)", DISPATCH),
    Mutation(QUEUE, "len(self.waiting) > 1 or", "len(self.waiting) > 0 or", DISPATCH),
    Mutation(STEALING, ">= MIN_GAIN * (", ">= 0 * (", DISPATCH),
    Mutation(STEALING, "(thief.pace + victim.pace)", "thief.pace", DISPATCH),
    # A bound that isn't one, and plans that aren't the best.
    Mutation(
        "plans/bounds/bound_terms.py",
        "sizes = share / counts",
        "sizes = 2 * share / counts",
        BOUND,
    ),
    Mutation("plans/bounds/lower_bound.py", "min(serial, *rings, ", "max(serial, *rings, ", BOUND),
    Mutation("plans/bounds/lower_bound.py", "return (2,) if room > 1 else ()", "return ()", BOUND),
    Mutation(
        "plans/bounds/installment_bound.py",
        "fills = -(-share // device.room)",
        "fills = share",
        BOUND,
    ),
    Mutation(
        "plans/bounds/installment_bound.py", "        single, least_of", "        least_of", BOUND
    ),
    Mutation(
        "plans/bounds/ring_bound.py",
        "(device.room - rest), 1)",
        "(device.room - rest), slots)",
        BOUND,
    ),
    Mutation("plans/bounds/ring_bound.py", "whole / slots", "whole", BOUND),
    Mutation("plans/bounds/ring_bound.py", "share - turns * device.room", "share", BOUND),
    Mutation("plans/search/exhaustive.py", "rest + found[0]", "found[0]", BEST),
    Mutation("plans/search/recipes.py", "if rest <= size", "if rest < size", BEST),
]
