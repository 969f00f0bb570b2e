"""NVIDIA GPUs through CuPy. All code specific to CUDA is in this folder."""
