"""The council: agents of the IGNITE protocol and their messages."""
