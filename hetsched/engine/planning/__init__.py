"""Planning runs from models, and learning models from runs."""
