"""Property tests draw the same examples every time, wherever they run."""

from hypothesis import settings

settings.register_profile("hetsched", derandomize=True, database=None, deadline=None)
settings.load_profile("hetsched")
