"""`python -m kingdom.soldier <task>`: one soldier, one task, one raw report.

`--sandbox` prints what its sandbox would lack, and on a second line why a process could hide from its end.
`--warm` serves soldiers for its general, which speaks by the socket of that number, until there is nothing more to do.
"""

import os
import sys

from kingdom.base.home.places import Places, find_home
from kingdom.court.soldier import sandbox
from kingdom.court.soldier.serve import Ready, serve
from kingdom.court.soldier.warm import serve_warm

if __name__ == "__main__":
    if sys.argv[1] in ("--sandbox", "--cage"):  # as older copies of gen-doctor ask
        print(sandbox.missing() or "", sandbox.missing_hold() or "", sep="\n")
    elif sys.argv[1] == "--warm":
        sys.exit(serve_warm(int(sys.argv[2])))
    else:
        os.umask(0o077)
        sandbox.go_first()
        make_durable = serve(Ready.of(os.environ, Places(find_home())), sandbox.Prepared())
        make_durable()
