"""Small jobs that run beside a larger one: the rule, their plans, the drivers of running jobs."""
