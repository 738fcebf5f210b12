"""Engines that a soldier can run."""

ENGINES = {
    "command": "kingdom.soldier.engines.command:Command",
}
