"""Iterations on one device, in step with the others of an epoch."""
