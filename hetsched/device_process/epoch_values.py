"""The combined values of reductions during an epoch, as each device computes them for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hetsched.device_process.iterative_run import IterativeRun
from hetsched.iterations.home import Part, stages_of
from hetsched.iterations.partials import combine, combined_slot, slot_of
from hetsched.workload import Stage, Values


class EpochValues:
    """Values of one device.

    Partials and values of the start alternate between both parities from round to round, as those
    of iterations do: a device may still combine the values of one round while another one already
    computes the next.

    Parameters
    ----------
    slot : int
        Of this device in partials.

    Attributes
    ----------
    values : Values
        For kernels.
    slots : sequence of int
        Slots with rows, in the order of their rows.
    """

    def __init__(self, run: IterativeRun, slot: int) -> None:
        self.values = Values()
        self.slots: Sequence[int] = ()
        self._run = run
        self._slot = slot
        self._own: dict[tuple[str, int], Mapping[str, np.ndarray]] = {}

    def partials(self, stage: Stage, parity: int) -> Mapping[str, np.ndarray]:
        """Return the arrays that the stage's kernel fills."""
        key = (stage.name, parity)
        if key not in self._own:
            arrays = {name: self._run.partials[name] for name in stage.reductions}
            self._own[key] = slot_of(arrays, parity, self._slot)
        return self._own[key]

    def combine(self, stage: Stage, parity: int) -> None:
        """Combine what all devices have computed in the stage."""
        if not stage.reductions:
            return
        now = dict(self.values.now)
        for name in stage.reductions:
            now[name] = combine(
                self._run.reductions[name], self._run.partials[name], parity, self.slots
            )
        self.values = Values(now, self.values.before)

    def begin_iteration(self) -> None:
        """Make the present values those of the previous iteration."""
        self.values = Values(self.values.now, self.values.now)

    def save_start(self) -> None:
        """Store the values of the start, which the partials of iterations will replace.

        By all devices: they store the same, and the start is complete when any one has died.
        """
        for name in self._reductions_of(Part.START):
            array = self._run.partials[name]
            array[:, combined_slot(array)] = self.values.now[name]

    def save(self) -> None:
        """Store the values of the last iteration, which later ones will replace; by one device."""
        for name, value in self.values.now.items():
            array = self._run.partials[name]
            array[:, combined_slot(array)] = value

    def restore(self, iteration: int, previous: Sequence[int]) -> None:
        """Take the values after `iteration` from the partials of the slots `previous`.

        (): from the combined values.
        """
        in_iteration = set(self._reductions_of(Part.ITERATION)) if iteration > 0 else set()
        now = {}
        for name in dict.fromkeys((*self._reductions_of(Part.START), *in_iteration)):
            reduction, array = self._run.reductions[name], self._run.partials[name]
            if name in in_iteration and previous:
                now[name] = combine(reduction, array, iteration, previous)
            else:
                saved = array[iteration % 2, combined_slot(array)]
                now[name] = np.array(saved, dtype=reduction.dtype)
        self.values = Values(now, now)

    def _reductions_of(self, part: Part) -> Iterable[str]:
        for stage in stages_of(self._run.workload, self._run.params, part):
            yield from stage.reductions
