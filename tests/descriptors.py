"""The descriptors that this process has open, for tests of what is left behind."""

from __future__ import annotations

import gc
import os


def open_descriptors() -> set[tuple[int, str]]:
    """Return number and target of each.

    Compare with ``<=``, not by counts: what earlier tests have left may be closed at any moment,
    as when the collector finds it.
    """
    gc.collect()
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add((int(number), os.readlink(f"/proc/self/fd/{number}")))
        except FileNotFoundError:  # the one of the listing itself
            continue
    return found
