"""The transitions of a job's state machine, by stage. Pure."""
