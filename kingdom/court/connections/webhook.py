"""A webhook: its address is its secret."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from kingdom.base import loopback
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.court.connections.base import Needed, ServiceRefused

URL = Needed("WEBHOOK_URL", "address (https://…)")


class WebhookService:
    serves = "the envoy uses it to post to Mattermost, Discord, Teams or another chat"
    needs = (URL,)
    guide = """\
Mattermost: Integrations, Incoming Webhooks. Discord: a channel's settings, Integrations, Webhooks.
Teams: a channel's Workflows, "Post to a channel when a webhook request is received".
Whoever has the address can post: it is kept like a token."""

    def try_it(self, places: Places, secrets: Mapping[str, str]) -> str:
        """Look at the address alone: a webhook can only be tried by a post."""
        address = URL.value(secrets)
        if not loopback.keeps_secrets(address):
            raise ServiceRefused(service="the webhook", why=f"{URL.name} must be an address that begins with https://")
        is_used = "webhook" in config.for_looking(places, "envoy")[0]
        step = "" if is_used else "; now write `webhook: {format: text}` into config/envoy.yaml"
        return f"posts will go to {urlsplit(address).hostname}{step}"
