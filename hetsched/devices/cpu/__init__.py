"""CPU cores, individually or as a team."""
