"""What is kept on disk: `models.db`, exports, `.npy` files."""
