"""What an answer was to hand out, refused because there is no room for it."""

from typing import Any

import orjson

from kingdom.base.disk.bulk import FileIdentity
from kingdom.mq.mailbox.pending import PendingRequest
from kingdom.mq.mailbox.requests import MailboxRequest, Sender

LEASE = {"leaseId": "l1", "messageKey": "msg:q:1"}
HANDED_OUT = {"message": {"payload": "x"}, "lease": LEASE}


def answered(data: dict[str, Any]) -> PendingRequest:
    request = MailboxRequest("r.json", FileIdentity(1, 1), "r", "me", "any", {}, 0, Sender(0, 1))
    pending = PendingRequest(request, "/r.json", "any", None)
    pending.succeed(data)
    return pending


def test_a_message_or_many_are_refused_as_a_whole() -> None:
    both: tuple[dict[str, Any], ...] = (HANDED_OUT, {"messages": [HANDED_OUT]})
    for data in both:
        pending = answered(data)
        assert pending.leases() == [LEASE]
        pending.refuse_leases("no room")
        assert orjson.loads(pending.answer)["error"] == {"code": "ERR_INTERNAL_ERROR", "message": "no room"}


def test_the_other_calls_of_a_batch_keep_their_answers() -> None:
    ack = {"requestId": "a", "ok": True, "data": {}}
    pending = answered({"answers": [ack, {"requestId": "b", "ok": True, "data": HANDED_OUT}]})
    assert pending.leases() == [LEASE]
    pending.refuse_leases("no room")
    refused = {"requestId": "b", "ok": False, "error": {"code": "ERR_INTERNAL_ERROR", "message": "no room"}}
    assert orjson.loads(pending.answer)["data"]["answers"] == [ack, refused]
    assert not pending.leases()


def test_what_hands_nothing_out_has_no_leases() -> None:
    others: tuple[dict[str, Any], ...] = ({"message": None}, {"messages": [{"messageId": "1"}]}, {"results": []})
    for data in others:
        assert not answered(data).leases()
