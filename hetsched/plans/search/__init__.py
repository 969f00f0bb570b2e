"""The search for a good ring of chunks."""
