"""Whether the devices of an epoch get on, for its deadline. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping


class EpochProgress:
    """When an epoch last got on, and who is behind the others.

    Attributes
    ----------
    since : float, seconds
        When a device last arrived at the end of a stage, as far as has been looked.
    """

    def __init__(self, since: float) -> None:
        self.since = since
        self._arrivals: Mapping[str, int] = {}

    def reported(self, now: float) -> None:
        """Record that a device has reported something."""
        self.since = now

    def look(self, arrivals: Mapping[str, int], now: float) -> None:
        """Compare how often devices have arrived with the last look."""
        if dict(arrivals) != dict(self._arrivals):
            self._arrivals = dict(arrivals)
            self.since = now

    def laggards(self, running: Collection[str]) -> list[str]:
        """Return those of `running` that have arrived least often: the others wait for them."""
        counts = {device: self._arrivals.get(device, 0) for device in sorted(running)}
        least = min(counts.values(), default=0)
        return [device for device, count in counts.items() if count == least]
