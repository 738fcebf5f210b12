"""Services of the outside world, played on loopback: what tests and the demo speak to instead of an account.

One file per service. Each behaves as the real one was measured to behave, its faults included, and keeps what it was
asked, so that a test can look at it.
"""
