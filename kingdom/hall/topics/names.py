"""The topics of the hall, as existing deployments call them."""

MESSAGES = "chat.messages.v1"
"""What people sent: `MessageCreated`, from the gateway to the worker."""
PERSISTED = "chat.messages.persisted.v1"
"""What the database holds: `MessagePersisted`, from the worker to every gateway."""
DEAD = "chat.messages.dead.v1"
"""What could not be stored, with the reason."""
SIGNALS = "hall.signals.v1"
"""Passing things that gateways tell each other."""
COMMANDS = "hall.commands.v1"
"""What somebody wants the worker to do."""

PASSING = frozenset({SIGNALS})
"""These matter for moments: they are not made durable, and kept for minutes."""
