"""The hall: rooms in which people chat."""
