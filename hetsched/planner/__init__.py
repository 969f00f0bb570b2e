"""Plans for whole jobs: variants, shares and chunks of all devices. Pure."""
