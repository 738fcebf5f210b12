"""Stand-ins of outside services on loopback, for tests and the demo.

One file per service. Each behaves as the real one was measured to behave, its faults included, and keeps what it was
asked, so that a test can look at it.
"""
