"""NVIDIA GPUs through CuPy. Only this folder knows CUDA."""
