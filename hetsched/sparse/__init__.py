"""Sparse matrices as arrays: their names, and conversion from SciPy's formats."""
