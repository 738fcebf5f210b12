"""The mailbox: Yi-Rang MQ for local processes, as files that anybody can write and read."""
