"""`python -m kingdom.soldier <task>`: one soldier, one task, one raw result."""

import sys

from kingdom.soldier.serve import serve

if __name__ == "__main__":
    sys.exit(serve(sys.argv[1]))
