"""Threads for work that may block or hang, so that the loop never does."""
