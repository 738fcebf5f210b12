"""Tell people on another channel, once, that a channel refuses our token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kingdom.base.disk.json_file import JsonFile
from kingdom.base.home.places import as_filename
from kingdom.base.records.messages import alert
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.court.envoy.channels import Channels


class LockedOut:
    """The channels that refuse our token, in a file, so that each is reported once, also after a restart or kill."""

    def __init__(self, services: Services, channels: Channels) -> None:
        self._services = services
        self._channels = channels
        path = services.places.own("envoy") / "locked-out.json"
        self._since = JsonFile(path, services.disk, services.log.error, _is_sound)

    def note(self, channel: str, why: str) -> None:
        """Write the message unless it was written: when it began is noted first, and is part of the message's id."""
        self._since.set(channel, self._since.get(channel) or stamp(self._services.clock()))
        self._since.save()
        since = self._since.get(channel)
        messages = self._services.queues.messages
        id = f"msg-{since[:10].replace('-', '')}-envoy-{as_filename(f'{channel}-locked-out-{since[11:]}')}"
        if not messages.was_made(id):
            text = f"{why}; until then nothing is posted or received there, and its messages wait"
            messages.create([replace(alert(id, text, None, since), source_ref={"source": self._another(channel)})])

    def over(self, channel: str) -> None:
        """Note that the channel takes our token again."""
        self._since.remove(channel)
        self._since.save()

    def _another(self, channel: str) -> str:
        return next((name for name in self._channels.switched_on() if name != channel), "console")


def _is_sound(_channel: str, since: Any) -> bool:
    return isinstance(since, str) and len(since) > 11
