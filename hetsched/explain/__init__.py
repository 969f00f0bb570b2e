"""What became of a job and why: records, and the words for people. Pure, without NumPy."""

from hetsched.explain.records import Account, DeviceAccount, Phases, Spent, Way, WhatIf, thinned
from hetsched.explain.trace import trace

__all__ = ["Account", "DeviceAccount", "Phases", "Spent", "Way", "WhatIf", "thinned", "trace"]
