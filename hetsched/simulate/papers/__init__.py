"""The papers' experiments on simulated machines."""
