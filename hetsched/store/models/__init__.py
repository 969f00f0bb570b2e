"""The learnt models: ``models.db``, its use by jobs and by commands, and exports."""
