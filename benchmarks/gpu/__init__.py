"""Parts of `benchmarks.gpu_check`, one file a section; each runs in a process of its own."""
