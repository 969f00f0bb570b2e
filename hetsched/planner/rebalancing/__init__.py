"""The plan of each run of one kind of job: kept or made anew, with probes and trials of sizes."""
