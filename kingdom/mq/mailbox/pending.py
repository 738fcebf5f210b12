"""A request that is being carried out, until its answer is on its way."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import orjson

from kingdom.base.disk.bulk import FileIdentity
from kingdom.base.disk.lock import is_locked
from kingdom.mq.call_fields import Data
from kingdom.mq.calls import CommandRow, OngoingCall, leases_in
from kingdom.mq.mailbox.commands import CommandContext
from kingdom.mq.mailbox.requests import MailboxRequest
from kingdom.mq.rights import Rights


@dataclass(slots=True)
class PendingRequest:
    request: MailboxRequest
    #: Where the request's file lies.
    path: str
    #: The command's first name; the word that was asked when there is no such command.
    name: str
    command: CommandRow[CommandContext] | None
    #: The answer as it will be written.
    answer: bytes = b""
    #: The code of the error it is answered with; None: it succeeded.
    code: str | None = None
    #: How long it took.
    seconds: float = 0.0
    #: The command as it is carried out; None before that has begun.
    work: OngoingCall[CommandContext] | None = None
    #: Until when it waits for a message, in ms of the engine's time; 0: it does not wait yet.
    waits_until: int = 0
    #: What its client may do; None: everything.
    rights: Rights | None = None
    #: What its client holds a lock on while it lives; empty when nobody can tell.
    locked: str = ""

    def client_was_killed(self) -> bool:
        """Return whether its client was killed while it waited."""
        try:
            return bool(self.locked) and os.path.exists(self.locked) and not is_locked(Path(self.locked))
        except OSError:
            return False

    def is_withdrawn(self) -> bool:
        """Return whether its client has removed the request, or asked anew under the same name."""
        try:
            return FileIdentity.of(os.lstat(self.path)) != self.request.identity
        except FileNotFoundError:
            return True

    def succeed(self, data: Data) -> None:
        self.code = None
        self.answer = _line({"requestId": self.request.id, "ok": True, "data": data})

    def refuse(self, code: str, why: str) -> None:
        self.code = code
        self.answer = refusal(self.request.id, code, why)

    def leases(self) -> list[Data]:
        """Return the leases that its answer hands out."""
        return _leases_in(orjson.loads(self.answer))

    def refuse_leases(self, why: str) -> None:
        """Answer the same without these: a batch of calls refuses each that was to hand out a message."""
        answers = orjson.loads(self.answer)["data"].get("answers")
        if answers is None:
            self.refuse("ERR_INTERNAL_ERROR", why)
            return
        refused = {"ok": False, "error": {"code": "ERR_INTERNAL_ERROR", "message": why}}
        given = [{"requestId": one["requestId"], **refused} if _leases_in(one) else one for one in answers]
        self.succeed({"answers": given})


def _leases_in(answer: Data) -> list[Data]:
    data = answer.get("data", {})
    of_batch = (lease for one in data.get("answers", ()) for lease in leases_in(one.get("data", {})))
    return [*leases_in(data), *of_batch]


def refusal(request_id: str, code: str, why: str) -> bytes:
    """Return the answer to a request that is refused."""
    return _line({"requestId": request_id, "ok": False, "error": {"code": code, "message": printable(why)}})


def printable(text: str) -> str:
    """Return the text without lone surrogates: file names may hold bytes that are no characters."""
    return text.encode("utf-8", "backslashreplace").decode()


def _line(answer: Data) -> bytes:
    return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE)
