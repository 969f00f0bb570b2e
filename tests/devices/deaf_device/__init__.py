"""A device whose process never gets to its hello."""
