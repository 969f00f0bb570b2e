"""Property tests draw the same examples every time, wherever they run; signals have effect."""

import os
import signal

from hypothesis import settings

# HETSCHED_TEST_PROFILE=stress: see `make stress`.
for profile, examples in (("test", 25), ("stress", 1000)):
    settings.register_profile(
        profile, derandomize=True, database=None, deadline=None, max_examples=examples
    )
settings.load_profile(os.environ.get("HETSCHED_TEST_PROFILE", "test"))

# Ignored by the processes that we start, too, if we run in the background or under nohup.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        is_interrupt = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
