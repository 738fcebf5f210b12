"""`python -m kingdom.soldier <task>`: one soldier, one task, one raw report.

`--cage` prints what its sandbox would lack, and on a second line why a process could hide from its end.
"""

import sys

from kingdom.soldier import sandbox
from kingdom.soldier.serve import serve

if __name__ == "__main__":
    if sys.argv[1] == "--cage":
        print(sandbox.missing() or "", sandbox.missing_hold() or "", sep="\n")
    else:
        sys.exit(serve(sys.argv[1]))
