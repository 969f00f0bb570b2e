"""The experiments of the papers, repeated on simulated machines."""
