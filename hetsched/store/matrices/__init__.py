"""Files of matrices: Matrix Market, and .npz as SciPy and NumPy write them."""
