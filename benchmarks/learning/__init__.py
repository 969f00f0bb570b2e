"""Cases in which the product's planner and models learn a simulated machine from scratch."""
