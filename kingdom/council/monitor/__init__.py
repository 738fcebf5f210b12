"""The council: checks the messages of the IGNITE protocol, and tells each agent about its own, one by one."""
