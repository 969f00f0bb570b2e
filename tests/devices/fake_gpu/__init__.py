"""A GPU on the fake runtime, in a device process: the device's code is the real one."""
