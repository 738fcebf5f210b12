"""The court: from an event to its answer."""
