"""What `hetsched metrics` shows: counted from jobs (pure), read from the process (edge)."""
