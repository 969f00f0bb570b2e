"""The loop that learns a balanced split from runs: `Balancer` and its methods."""
