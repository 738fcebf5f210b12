"""The demo: a story, and stand-ins of the services it needs."""
