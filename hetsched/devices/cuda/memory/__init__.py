"""Memory of a GPU, and the host memory that it copies from and to."""
