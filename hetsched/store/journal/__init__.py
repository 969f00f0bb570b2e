"""``journal.db``: the daemon's jobs on disk, so that none is lost when the daemon ends."""
