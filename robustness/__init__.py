"""Fault injection at scale: the promises of docs/robustness.md, tested on real daemons.

`python -m robustness [--long] [NAME ...]` runs the scenarios and records their figures: `make
robust` takes about ten minutes, with shortened deadlines, `make robust-long` more than an hour.

Each scenario is one file with a function `measure(scale) -> Result`, a line in `SCENARIOS`
(`__main__.py`) and a row in docs/robustness.md. `make test` runs the same functions with small
counts (tests/robustness/) and checks all bars but those on time.
"""
