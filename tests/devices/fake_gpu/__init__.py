"""A GPU on the simulated runtime, in a device process: the device's code is the real one."""
