"""Pictures, drawn by matplotlib: speed functions, simulations, what jobs did when."""
