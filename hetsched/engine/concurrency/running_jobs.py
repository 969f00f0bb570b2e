"""The drivers of the running jobs, and the events of devices for them."""

from __future__ import annotations

from collections.abc import Iterator

from hetsched.engine.run.runner import JobRunner
from hetsched.transport.device_messages import Event, ProcessEvent


class RunningJobs:
    """At most one main job, and small jobs at its side.

    Attributes
    ----------
    main : JobRunner or None
    sides : dict of int to JobRunner
        Side jobs by number. They may outlive the main job beside which they began.
    """

    def __init__(self) -> None:
        self.main: JobRunner | None = None
        self.sides: dict[int, JobRunner] = {}

    def __iter__(self) -> Iterator[JobRunner]:
        """Iterate over a copy: a driver's job may end at any event."""
        main = () if self.main is None else (self.main,)
        return iter((*main, *self.sides.values()))

    def __bool__(self) -> bool:
        return self.main is not None or bool(self.sides)

    def get(self, number: int) -> JobRunner | None:
        """Return the driver of a running job; None if the job isn't running."""
        if self.main is not None and self.main.number == number:
            return self.main
        return self.sides.get(number)

    def add(self, driver: JobRunner) -> None:
        """Add a job that begins. A main job shares its cores with the side jobs still running."""
        if driver.side is not None:
            self.sides[driver.number] = driver
            return
        assert self.main is None, "a main job is running"
        self.main = driver
        for _ in self.sides:
            driver.add_side_job()

    def remove(self, number: int) -> JobRunner:
        """Remove and return the driver of a job that has ended."""
        if self.main is not None and self.main.number == number:
            driver, self.main = self.main, None
            return driver
        return self.sides.pop(number)

    # ---- events

    def on_message(self, device: str, message: Event) -> None:
        """Pass a message of `device` to the job that it is about; drop it if that has ended."""
        if not self.sides:
            if self.main is not None:
                self.main.on_message(device, message)
            return
        for driver in self:
            if not isinstance(message, ProcessEvent) and driver.attempt_id == message.job:
                driver.on_message(device, message)
                return

    def on_lost(self, devices: tuple[str, ...], reason: str, culprits: tuple[str, ...]) -> bool:
        """Report a death to all jobs; return whether a side job may be its cause.

        Then the main job isn't charged with it, and the side jobs that may have caused it start
        again, alone. Nobody is charged if a core was killed because a cancelled job didn't stop.
        """
        users = [driver for driver in self if driver.uses(culprits or devices)]
        suspects = [driver for driver in users if driver is not self.main]
        charged = suspects or users
        if any(driver.is_stopping and driver.uses(culprits) for driver in self):
            charged = []
        for driver in suspects:
            driver.withdraw()
        for driver in self:
            driver.on_lost(devices, reason, culprits, counts=driver in charged)
        return bool(suspects)

    def on_switched(self) -> None:
        """Tell all jobs that the user has disabled devices, or enabled them."""
        for driver in self:
            driver.on_switched()

    def on_joined(self, devices: tuple[str, ...]) -> None:
        for driver in self:
            driver.on_joined(devices)
