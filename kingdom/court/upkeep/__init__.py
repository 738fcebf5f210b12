"""Keep a home in order: delete what has ended, rotate logs. The chamberlain does it, the command line on demand."""
