"""One file per command, named for it."""
