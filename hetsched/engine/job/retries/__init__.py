"""What a job does about failures: its attempts, and the devices that it no longer uses."""
