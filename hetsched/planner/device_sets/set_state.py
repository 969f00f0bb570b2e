"""What a sequence of plans of one kind of job remembers about its sets of devices. Pure."""

from __future__ import annotations

from hetsched.planner.device_sets.subsets import DeviceSet

RUNS_PER_RETRY = 64
"""Runs after which a set that wasn't faster is tried again: something may have changed."""
MAX_TRIAL_RUNS = 3
"""Runs of one trial at most: as many as confirm a change of speed."""

Names = frozenset[str]


class SetState:
    """The present set of devices, and which others were slower. Changed by `choose_set`.

    Attributes
    ----------
    present : frozenset of str or None
        The devices of the present set; None: not chosen yet.
    wants_plan : bool
        Whether another set may be worth a trial soon: the next run should be planned anew.
    is_trying : bool
        Whether the last plan tries another set.
    runs : int
        Runs so far.
    """

    def __init__(self) -> None:
        self.present: Names | None = None
        self.wants_plan = False
        self.is_trying = False
        self.runs = 0
        self._rejected_at: dict[Names, int] = {}
        self._trial_runs: dict[Names, int] = {}

    def change(self, device_set: DeviceSet) -> None:
        """Make this the present set."""
        if self.present != device_set.names:
            self.present = device_set.names
            self._rejected_at.clear()
            self._trial_runs.clear()

    def reject(self, device_set: DeviceSet) -> None:
        """Record that a set was measured and isn't faster than the present one."""
        self._rejected_at.setdefault(device_set.names, self.runs)

    def is_retry_due(self, device_set: DeviceSet) -> bool:
        """Return whether a rejected set may be tried again now."""
        rejected_at = self._rejected_at.get(device_set.names)
        return rejected_at is not None and self.runs - rejected_at >= RUNS_PER_RETRY

    def may_try(self, device_set: DeviceSet) -> bool:
        """Return whether a set wasn't tried yet as often as is allowed."""
        names = device_set.names
        if self._trial_runs.get(names, 0) == MAX_TRIAL_RUNS and self.is_retry_due(device_set):
            self._trial_runs[names] = 0
        return self._trial_runs.get(names, 0) < MAX_TRIAL_RUNS

    def record_trial_run(self, device_set: DeviceSet) -> None:
        """Record that a set is tried in the next run."""
        names = device_set.names
        self._trial_runs[names] = self._trial_runs.get(names, 0) + 1
        if self._trial_runs[names] == MAX_TRIAL_RUNS:
            self._rejected_at[names] = self.runs
