"""Note that a role was asked to end while it was still loading: bin/role must not take that for a crash.

The first import of every role's __main__, as the rest takes most of a second on a busy machine.
"""

import os
import signal
from contextlib import suppress

LEDGER = os.environ.get("KINGDOM_LEDGER", "")


def _note(number: int, _frame: object) -> None:
    with suppress(OSError):
        ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        os.write(ledger, b"asked %d\n" % os.getpid())
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if LEDGER:
    for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(_number) is not signal.SIG_IGN:
            signal.signal(_number, _note)
