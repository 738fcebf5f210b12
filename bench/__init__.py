"""What the kingdom costs, each figure beside what the machine can do at best, taken in the same run.

All rows are in table.toml. A driver is a function `(quick) -> Found` (see figures.py) that adds samples.
"""
