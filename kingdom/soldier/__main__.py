"""`python -m kingdom.soldier <task>`: one soldier, one task, one raw report. `--cage`: what its sandbox would lack."""

import sys

from kingdom.soldier import sandbox
from kingdom.soldier.serve import serve

if __name__ == "__main__":
    if sys.argv[1] == "--cage":
        print(sandbox.missing() or "")
    else:
        sys.exit(serve(sys.argv[1]))
