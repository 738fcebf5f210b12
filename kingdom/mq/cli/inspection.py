"""What `kingdom fsck` looks for in the queue's store."""

from __future__ import annotations

from collections.abc import Iterator

from kingdom.base.disk.lock import is_locked
from kingdom.base.errors import KingdomError
from kingdom.base.home.places import Places
from kingdom.base.wing import FsckFinding
from kingdom.mq.cli.yirangmq_call import open_direct

MQ_RULE = "The store of the queue for local programs fits together."


def store(places: Places, repair: bool) -> Iterator[FsckFinding]:
    """Look at the store while no manager holds it; a manager does so itself when it starts."""
    if not places.mq.is_dir() or is_locked(places.lock("mailbox")):
        return
    try:
        opened = open_direct(None)
    except KingdomError as error:
        yield FsckFinding("mq", MQ_RULE, places.mq, str(error), "")
        return
    try:
        for found in opened.check(repair):
            what = f"{found['kind']} {found['what']} of {found['queue']}"
            yield FsckFinding("mq", MQ_RULE, places.mq, what, "mended by the store", bool(found["repaired"]))
    finally:
        opened.close()
