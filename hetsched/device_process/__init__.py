"""The device process: its main thread, one thread per device, the pipeline."""
