"""A third-party device kind: a package with the two modules that a kind needs."""
