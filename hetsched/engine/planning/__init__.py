"""Models in, a plan out; measurements in, models out: the work of the planner thread."""
