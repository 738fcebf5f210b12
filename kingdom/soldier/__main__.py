"""`python -m kingdom.soldier <task>`: one soldier, one task, one raw result. With --cage: what its cage would lack."""

import sys

from kingdom.soldier import cage
from kingdom.soldier.serve import serve

if __name__ == "__main__":
    if sys.argv[1] == "--cage":
        print(cage.missing() or "")
    else:
        sys.exit(serve(sys.argv[1]))
