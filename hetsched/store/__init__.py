"""Files on disk: `models.db` (`models`), `journal.db` (`journal`), arrays (`arrays`)."""
