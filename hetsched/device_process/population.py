"""Large segments whose pages are still being put in place.

The main thread does that, a block between two commands, so that it can answer; device threads
wait for the segments of the job that they prepare. Whoever cancels that job doesn't wait.

It begins with the first job that this process computes itself, not with that of a core that has a
process for iterative jobs.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterable, Iterator

from hetsched.transport.pages import BLOCK_BYTES, populate


class SegmentPopulation:
    """The segments that are being populated, oldest first. `wait` is for device threads."""

    def __init__(self) -> None:
        self._mappings: dict[int, mmap.mmap] = {}
        """Those without all pages in place, as far as this process knows."""
        self._blocks: dict[int, Iterator[int]] = {}
        self._changed = threading.Condition()

    @property
    def is_pending(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._blocks)

    def add(self, key: int, mapping: mmap.mmap) -> None:
        """Add a segment that jobs of this process may use."""
        self._mappings[key] = mapping

    def begin(self, keys: Iterable[int]) -> None:
        """Populate segments that a job needs: at once if it is one block, else step by step."""
        for key in keys:
            mapping = self._mappings.get(key)
            if mapping is None or key in self._blocks:
                continue
            blocks = populate(mapping)
            next(blocks)
            if len(mapping) > BLOCK_BYTES:
                with self._changed:
                    self._blocks[key] = blocks
            else:
                del self._mappings[key]

    def step(self) -> None:
        """Put the next block in place."""
        key, blocks = next(iter(self._blocks.items()))
        if next(blocks, None) is None:
            self.drop([key])

    def drop(self, keys: Iterable[int]) -> None:
        """Leave the remaining pages of these segments to their first use."""
        with self._changed:
            for key in keys:
                self._mappings.pop(key, None)
                self._blocks.pop(key, None)
            self._changed.notify_all()

    def abandon(self) -> None:
        """Do so for the segments of present jobs: a device is asked to drop one."""
        self.drop(list(self._blocks))

    def wait(self, key: int) -> None:
        """Wait until the pages of a segment are in place, or are no longer being put there."""
        with self._changed:
            self._changed.wait_for(lambda: key not in self._blocks)
