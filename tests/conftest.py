"""Property tests draw the same examples every time, wherever they run; Ctrl-C works."""

import signal

from hypothesis import settings

settings.register_profile("hetsched", derandomize=True, database=None, deadline=None)
settings.load_profile("hetsched")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell has started us in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
