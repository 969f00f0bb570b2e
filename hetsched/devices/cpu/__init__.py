"""CPU cores, one by one or as a team."""
