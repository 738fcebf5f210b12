"""E-mail: the account with which the mail server is signed in to."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping
from typing import Any

from kingdom.connections.base import Needed, ServiceDown, ServiceRefused
from kingdom.home import config
from kingdom.home.places import Places

NAME = "the mail server"
SECONDS = 5
LOOPBACK = ("127.0.0.1", "localhost", "::1")
USER = Needed("SMTP_USER", "name of the account", is_secret=False)
PASSWORD = Needed("SMTP_PASSWORD", "password of the account")


class Email:
    serves = "the envoy sends mail by it"
    needs = (USER, PASSWORD)
    guide = """\
First write `email: {host: …, from: …, to: …}` into config/envoy.yaml. Then the name and the password of an account that
may send: at large providers an app password of its own."""

    def try_it(self, places: Places, secrets: Mapping[str, str]) -> str:
        """Sign in and send nothing."""
        part = config.for_looking(places, "envoy")[0].get("email")
        if part is None:
            raise ServiceRefused(service=NAME, why="config/envoy.yaml has no part `email` that names it")
        if part["security"] == "none" and part["host"] not in LOOPBACK:
            raise ServiceRefused(service=NAME, why="email.security: none is for a server on this machine")
        try:
            with _server(part) as server:
                server.login(USER.value(secrets), PASSWORD.value(secrets))
        except smtplib.SMTPAuthenticationError as error:
            raise ServiceRefused(service=NAME, why=f"it does not take the password ({error.smtp_code})") from None
        except (OSError, smtplib.SMTPException) as error:
            raise ServiceDown(service=NAME, why=f"{type(error).__name__}: {error}"[:200]) from None
        return f"{part['host']} takes the account; mail goes to {part['to']}"


def _server(part: Mapping[str, Any]) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if part["security"] == "tls":
        return smtplib.SMTP_SSL(part["host"], part["port"], timeout=SECONDS, context=context)
    server = smtplib.SMTP(part["host"], part["port"], timeout=SECONDS)
    if part["security"] == "starttls":
        server.starttls(context=context)
    return server
