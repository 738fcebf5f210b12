"""A group that cannot be committed: nothing that was to be handed out is kept from the others."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

import pytest

from kingdom.mq.call_fields import Call
from kingdom.mq.calls import CALLS, OngoingCall
from kingdom.mq.errors import StoreError
from kingdom.mq.local import Local, _LocalCall, settings_of
from tests.mq.mailbox.boxes import ByHand

TOGETHER = (("consume_next", {"queue": "good"}), ("publish", {"queue": "bad", "message": {}}))


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


def test_so_it_does_in_a_library(home: Path) -> None:
    mq = Local(settings_of(home, backend="filesystem", durability="power"))
    for queue in ("good", "bad"):
        mq.publish(queue, {})
    rmtree(home / "fs" / "bad" / "inbox")
    begun = [_LocalCall(OngoingCall(CALLS[name], Call(payload, "me"))) for name, payload in TOGETHER]
    with pytest.raises(StoreError):
        mq._carry_out(begun, 0.0)
    delivery = mq.take("good")
    assert delivery is not None
    assert delivery.attempt == 1
    mq.close()
