"""The command line of Yi-Rang MQ."""
