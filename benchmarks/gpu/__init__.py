"""Sections of `benchmarks.gpu_check`; each runs in a separate process."""
