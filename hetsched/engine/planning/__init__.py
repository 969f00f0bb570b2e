"""Plans runs from models, and learns models from runs."""
