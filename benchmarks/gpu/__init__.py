"""Sections of `benchmarks.gpu_check`, one per file; each runs in a separate process."""
