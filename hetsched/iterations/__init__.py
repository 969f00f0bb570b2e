"""Iterations on arrays that stay in place: the parts that need no device."""
