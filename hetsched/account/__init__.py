"""What became of a job and why: records, and the words for people. Pure, without NumPy."""

from hetsched.account.records import (
    Account,
    DeviceAccount,
    Phases,
    Spent,
    Way,
    WhatIf,
    thinned,
)
from hetsched.account.trace import trace

__all__ = ["Account", "DeviceAccount", "Phases", "Spent", "Way", "WhatIf", "thinned", "trace"]
