"""Property tests draw the same examples every time, wherever they run; signals have effect."""

import signal

from hypothesis import settings

settings.register_profile("hetsched", derandomize=True, database=None, deadline=None)
settings.load_profile("hetsched")

# Ignored by the processes that we start, too, if we run in the background or under nohup.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        is_interrupt = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
