"""The balancer of `auto`: functional models, and searches for cliffs in them."""
