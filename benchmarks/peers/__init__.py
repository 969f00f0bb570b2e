"""Other libraries, each in a process of its own with its best setting: one file a library.

Each file has ``make(case) -> run``: `run()` does one repetition on warm arrays. What is slow and
done once (plans, descriptors) belongs into `make`.
"""
