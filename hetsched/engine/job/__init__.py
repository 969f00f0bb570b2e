"""One job from its turn to its end."""
