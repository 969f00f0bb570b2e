"""Files on disk: journal.db, models.db, users' arrays and matrices, checkpoints."""
