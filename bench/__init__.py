"""What the kingdom costs, each figure beside what the machine can do at best, taken in the same run.

A script is one module with `run(quick) -> Figures as a dict` (see figures.py); the table stands in __main__.py.
"""
