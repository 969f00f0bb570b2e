"""Other libraries, each in a separate process with its best settings: one file per library.

Each file has ``make(case) -> run``: `run()` does one repetition on warm arrays. Slow one-time work
(plans, descriptors) belongs in `make`.
"""
