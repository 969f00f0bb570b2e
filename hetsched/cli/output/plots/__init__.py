"""Pictures, drawn by matplotlib: speed functions, simulations, Gantt charts of jobs."""
