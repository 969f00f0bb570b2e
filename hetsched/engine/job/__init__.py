"""One job from its start to its end."""
