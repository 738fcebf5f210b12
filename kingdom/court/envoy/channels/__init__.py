"""Channels: ways to post to people and to receive their messages."""

from __future__ import annotations

from pathlib import Path

from kingdom import wings
from kingdom.base import tables
from kingdom.base.disk.atomic import make_folder
from kingdom.base.home.config import Config
from kingdom.base.runtime.role import Services
from kingdom.court.envoy.channels.base import Channel, ChannelKit, ChannelRefused

CHANNELS = {
    "console": "kingdom.court.envoy.channels.console:Console",
    "slack": "kingdom.court.envoy.channels.slack:open_channel",
    **{name: row for wing in wings.rows() for name, row in wing.channels.items()},
    "webhook": "kingdom.court.envoy.channels.webhook:WebhookChannel",
    "email": "kingdom.court.envoy.channels.email:EmailChannel",
}
WITHOUT_SETTINGS = frozenset({"console"})
"""Channels that need no part of their own in envoy.yaml."""


def default_channel(config: Config) -> str:
    """Return the channel for messages that answer nobody: the configured one, else the first with settings."""
    named = config.get("channel")
    return str(named or next((name for name in CHANNELS if name in config), "console"))


def usable_channels(config: Config) -> frozenset[str]:
    """Return the channels that can be posted to: most need a part of their own in envoy.yaml.

    What belongs on the console is shown in a product's channel where that is the default: `say` finds it either way.
    """
    default = default_channel(config)
    found = frozenset(CHANNELS) & {*config, *WITHOUT_SETTINGS, default}
    is_of_product = any(default in wing.channels for wing in wings.rows())
    return found - {"console"} if is_of_product else found


def default_room(config: Config, channel: str) -> str:
    """Return the room for messages that name none."""
    return str(config.get(channel, {}).get("default_channel") or channel)


def with_products(config: Config, system: Config) -> Config:
    """Return the configuration with the channels of products of which all roles are switched on."""
    rows = [wing for wing in wings.rows() if wing.channels]
    on = [wing for wing in rows if all(system["roles"][row.name] for row in wing.roles)]
    return {**{name: {} for wing in on for name in wing.channels}, **config}


class Channels:
    """The channels of this home, each opened when it is first needed."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._opened: dict[str, Channel] = {}

    def get(self, name: str) -> Channel:
        """Return the channel of this name. ChannelRefused when there is none, or when it does not open."""
        if name not in CHANNELS:
            raise ChannelRefused(channel=name, why="there is no such channel")
        if name not in self._opened:
            self._opened[name] = tables.load(CHANNELS[name])(self._kit(name))
        return self._opened[name]

    def switched_on(self) -> list[str]:
        """Return the names of the channels to listen to: those that have a part of their own in envoy.yaml."""
        return [name for name in CHANNELS if name in self._services.config]

    def unsynced(self) -> list[Path]:
        """Return the files of posts that are not durable."""
        return [path for channel in self._opened.values() for path in channel.unsynced()]

    def close(self) -> None:
        """Close what is open."""
        for channel in self._opened.values():
            channel.close()
        self._opened.clear()

    def _kit(self, name: str) -> ChannelKit:
        services = self._services
        folder = services.places.own("envoy") / name
        make_folder(folder)
        return ChannelKit(
            folder=folder,
            disk=services.disk,
            clock=services.clock,
            config=services.config.get(name, {}),
            alarm=services.alarm,
            secrets=services.secrets,
            home=services.places.home,
            tell=services.log.warn,
        )
