"""Analysis of a plan or a finished run: bounds, alternatives, and where the time went. Pure."""
