"""The council's commands."""
