"""A fake CUDA runtime."""
