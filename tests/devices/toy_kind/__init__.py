"""A device kind of a third party: a package with the two modules that a kind needs."""
