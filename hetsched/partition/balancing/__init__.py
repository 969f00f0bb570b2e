"""The loop that learns balanced shares from runs: `Balancer` and its methods."""
