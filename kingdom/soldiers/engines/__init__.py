"""Engines that a soldier can run."""

ENGINES = {
    "command": "kingdom.soldiers.engines.command:Command",
}
