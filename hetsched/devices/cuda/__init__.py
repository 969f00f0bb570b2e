"""NVIDIA GPUs through CuPy. What isn't specific to CUDA is in `accelerator`."""
