"""How many cores tests may compute on, and what those do that need more than one."""

from __future__ import annotations

import os

import pytest

HARDWARE_THREADS = len(os.sched_getaffinity(0))
COUNT = min(2, HARDWARE_THREADS)
"""Of the cores in a test's configuration, where any number will do."""
needs_two_cores = pytest.mark.skipif(HARDWARE_THREADS < 2, reason="needs two cores")
