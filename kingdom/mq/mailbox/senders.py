"""Who has written a request: the owner of its file. What the client may do that it speaks for is in the configuration.

A mailbox that other users may write to serves those whom `ipc.clients` lists, and nobody besides them, its own user and
root.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kingdom.base.errors import BadConfig
from kingdom.mq.mailbox.requests import MailboxRequest, Sender, Unreadable
from kingdom.mq.mailbox.responses import owner_of
from kingdom.mq.rights import Rights

OTHERS_MAY_WRITE = 0o022
ROOT = 0


class Senders:
    def __init__(self, clients: Mapping[str, Mapping[str, Any]], mode: int | None) -> None:
        """`clients` as the configuration lists them; `mode` that requests/ is given, None for the one that it has."""
        self.is_open = bool((mode or 0) & OTHERS_MAY_WRITE) or any("may" in about for about in clients.values())
        self._owners = {
            client: uid for client, about in clients.items() if (uid := owner_of(client, about)) is not None
        }
        for client, about in clients.items():
            if "may" in about and client not in self._owners:
                why = "is missing: only the owner of a request's file says who has written it"
                raise BadConfig(path="mq.yaml", line="", key=f"ipc.clients.{client}.owner", why=why)
        self._rights = {client: Rights(client, about.get("may", {})) for client, about in clients.items()}

    def rights_of(self, request: MailboxRequest) -> Rights | None:
        """Return what the sender of a request may do; None: everything. Unreadable: its client is not the sender's."""
        if why := self._why_not(request.client, request.sender):
            raise Unreadable("ERR_NOT_ALLOWED", why, request.id, request.client, request.sender)
        if not self.is_open or self._is_at_home(request.sender):
            return None
        return self._rights[request.client]

    def may_hear(self, client: str, sender: Sender | None) -> bool:
        """Return whether an answer to what this sender wrote may go to this client."""
        return sender is None or not self._why_not(client, sender)

    def _why_not(self, client: str, sender: Sender) -> str:
        owner = self._owners.get(client)
        if owner is not None and sender.uid != owner:
            return f"client {client!r} belongs to uid {owner}, and uid {sender.uid} wrote this"
        if not self.is_open:
            return ""
        if sender.links > 1:
            return "its file has other names too, so that nobody can tell who wrote it"
        if self._is_at_home(sender):
            return ""
        if owner is None:
            own = [repr(name) for name, uid in self._owners.items() if uid == sender.uid]
            if own:
                return f"uid {sender.uid} is client {' or '.join(own)} here, not {client!r}"
            return f"uid {sender.uid} is no client of this mailbox: list it in ipc.clients of its mq.yaml"
        return ""

    @staticmethod
    def _is_at_home(sender: Sender) -> bool:
        return sender.uid in (ROOT, os.geteuid())
