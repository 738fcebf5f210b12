"""The hall's commands."""
