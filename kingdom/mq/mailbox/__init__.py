"""The mailbox: Yi-Rang MQ for the processes of this machine; requests and answers are files."""
