"""NEC's method for the Balancer (US 9,038,088): imbalance factor, trades, groups, node models."""
