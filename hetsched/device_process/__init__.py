"""What runs in a device process: its main thread, a thread per device, the pipeline."""
