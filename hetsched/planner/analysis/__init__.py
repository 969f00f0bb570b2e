"""A finished plan explained: bounds, alternatives, and where the time went. Pure."""
