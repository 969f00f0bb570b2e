"""The engine, run by the daemon or `Local`: jobs, device processes, planning, learning."""
