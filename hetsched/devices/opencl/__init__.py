"""OpenCL devices through pyopencl: GPUs of AMD, Intel and others, and PoCL on a CPU."""
