"""What runs in the daemon or in `Local`: jobs, device processes, planning, learning."""
