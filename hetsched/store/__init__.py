"""Files on disk: `models.db` and exports of models (`models`), arrays in files (`arrays`)."""
