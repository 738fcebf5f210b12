"""A group that cannot be committed: nothing that was to be handed out is kept from the others."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest

from kingdom.mq.errors import StoreError
from tests.mq.mailbox.boxes import ByHand


def test_what_was_to_be_handed_out_waits_again_when_its_group_fails(home: Path) -> None:
    box = ByHand(home, backend="filesystem", durability="power")
    for queue in ("good", "bad"):
        box.data("publish", {"queue": queue, "message": {}})
    taken = box.post("consume_next", {"queue": "good"})
    lost = box.post("publish", {"queue": "bad", "message": {}})
    rmtree(home / "queue" / "mq" / "fs" / "bad" / "inbox")
    with pytest.raises(StoreError):
        box.turn()
    for request in (taken, lost):
        answer = box.answer(request)
        assert answer is not None
        assert answer["error"]["code"] == "ERR_INTERNAL_ERROR"
    assert box.data("consume_next", {"queue": "good"})["message"]["attempt"] == 1
    box.engine.close()
