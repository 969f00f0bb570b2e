"""Waits and guards of timelines and of the dispatcher, removed one by one."""

from mutations.runner import Mutation

TIMELINE = ("tests/plans/test_plans_replay.py",)
BATCH = ("tests/plans/test_plans_batch.py",)
PLAN = ("tests/plans/test_plans_plan.py",)
DISPATCH = ("tests/dispatch/test_dispatch_stealing.py",)
RANDOM = ("tests/dispatch/test_dispatch_random.py",)
WINDOWS = ("tests/dispatch/test_dispatch_dispatcher.py",)
BOUND = ("tests/plans/test_plans_bound.py",)
RECIPES = ("tests/plans/test_plans_recipes.py",)
BEST = tuple(
    f"tests/plans/test_plans_best.py::{name}"
    for name in (
        "test_installments_of_few_units_add_up",
        "test_an_odd_memory_is_filled_by_a_pattern",
    )
)
LAYOUT = ("tests/plans/test_plans_layout.py",)
LAID_OUT = ("tests/plans/test_plans_laid_out.py",)

RECURRENCE, TIMES = "plans/recurrence.py", "plans/timeline.py"
SLOTS = "plans/slot_allocation.py"
QUEUE, STEALING = "dispatch/device_queue.py", "dispatch/stealing.py"

MUTATIONS = [
    # A slot is used again while its chunk is still there.
    Mutation(
        RECURRENCE, "begin_in = maximum(begin_in, free)", "begin_in = self._arrived", TIMELINE
    ),
    Mutation(RECURRENCE, "self._freed(self.out_ends, ", "self._freed(self.out_begins, ", TIMELINE),
    Mutation(RECURRENCE, "if chunk >= slots else", "if chunk > slots else", TIMELINE),
    Mutation("plans/makespans.py", "ends[chunk - count]", "ends[chunk - count - 1]", BATCH),
    Mutation("plans/makespans.py", "if chunk < count:", "if chunk <= count:", BATCH),
    # A kernel starts before its input is there, or beside another kernel.
    Mutation(RECURRENCE, "begin = maximum(arrived, self._computed)", "begin = arrived", TIMELINE),
    Mutation(
        RECURRENCE, "begin = maximum(arrived, self._computed)", "begin = self._computed", TIMELINE
    ),
    # A result is copied out before it is computed, or beside another copy.
    Mutation(
        RECURRENCE,
        "begin_out = maximum(computed, self.makespan)",
        "begin_out = computed",
        TIMELINE,
    ),
    Mutation(
        RECURRENCE,
        "begin_out = maximum(computed, self.makespan)",
        "begin_out = self.makespan",
        TIMELINE,
    ),
    Mutation(RECURRENCE, "recurrence.delay_last_out(end)", "pass", TIMELINE),
    Mutation(RECURRENCE, "maximum(self.out_begins[-1], until)", "until", TIMELINE),
    Mutation(RECURRENCE, "Overlap.SINGLE: 2}", "Overlap.SINGLE: 3}", TIMELINE),
    Mutation(RECURRENCE, "Overlap.NONE: 1", "Overlap.NONE: 2", TIMELINE),
    # Copies in both directions don't slow each other down; sub-distributions don't wait.
    Mutation(RECURRENCE, "min(duplex) == 1 else", "min(duplex) <= 1 else", TIMELINE),
    Mutation(RECURRENCE, "due = maximum(begin, begins[out])", "due = begins[out]", TIMELINE),
    Mutation(RECURRENCE, "resumed = maximum(due, end_before)", "resumed = due", TIMELINE),
    Mutation(RECURRENCE, "rest - alone - together", "rest - together", TIMELINE),
    Mutation(RECURRENCE, "begins[out] = maximum(begins[out], end_before)", "pass", TIMELINE),
    Mutation(TIMES, "end = spans[-1][2][1]", "end = spans[-1][1][1]", TIMELINE),
    # What doesn't fit passes.
    Mutation("plans/device_plan.py", "first : first + slots]", "first : first + slots - 1]", PLAN),
    Mutation("plans/device_plan.py", "len(chunks) - slots, 0", "len(chunks) - slots - 1, 0", PLAN),
    Mutation(
        "plans/slot_allocation.py",
        "self._next_offset + size > self",
        "self._next_offset > self",
        LAYOUT,
    ),
    Mutation("plans/slot_allocation.py", "self._capacities[index] < size", "False", LAYOUT),
    Mutation(
        "plans/slot_allocation.py", "sum(capacities) > memory", "max(capacities) > memory", LAYOUT
    ),
    Mutation("plans/device_plan.py", "max(chunks[first::slots])", "chunks[first]", LAID_OUT),
    Mutation(
        "plans/search/ring_search.py",
        "fits(slot_sizes(ring",
        "fits([1] or slot_sizes(ring",
        LAID_OUT,
    ),
    Mutation("planner/assignment.py", "_slots(plan, link) + 1", "_slots(plan, link)", LAID_OUT),
    # A device gets more than its window, chunks of others twice, or what is held back for ever.
    Mutation(QUEUE, "len(self.sent) < self.window", "True", WINDOWS),
    Mutation(QUEUE, "final, last=True", "final, last=final.last", DISPATCH),
    Mutation(QUEUE, "final.count - remaining)", "final.count)", DISPATCH),
    Mutation(QUEUE, "final, count=remaining)", "final, count=final.count)", DISPATCH),
    Mutation(QUEUE, "max(final.count - units, 1)", "max(final.count - units, 0)", DISPATCH),
    Mutation(QUEUE, "len(self.waiting) > 1 or", "len(self.waiting) > 0 or", RANDOM),
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
        "fills = -(-share // inputs.room)",
        "fills = share",
        BOUND,
    ),
    Mutation(
        "plans/bounds/installment_bound.py", "min(single, filled / room)", "filled / room", BOUND
    ),
    Mutation(
        "plans/bounds/ring_bound.py",
        "(inputs.room - rest), 1)",
        "(inputs.room - rest), slots)",
        BOUND,
    ),
    Mutation("plans/bounds/ring_bound.py", "total / slots", "total", BOUND),
    Mutation("plans/bounds/ring_bound.py", "share - turns * inputs.room", "share", BOUND),
    Mutation("plans/search/exhaustive.py", "seconds + last[0]", "last[0]", BEST),
    Mutation("plans/search/recipes.py", "min(size, rest)", "max(size, rest)", RECIPES),
]
