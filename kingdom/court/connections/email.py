"""E-mail: the account with which the mail server is signed in to."""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kingdom.base import loopback
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.court.connections.base import Needed, ServiceDown, ServiceRefused

NAME = "the mail server"
SECONDS = 5
USER = Needed("SMTP_USER", "name of the account", is_secret=False)
PASSWORD = Needed("SMTP_PASSWORD", "password of the account")


class EmailService:
    serves = "the envoy uses it to send mail"
    needs = (USER, PASSWORD)
    guide = """\
First write `email: {host: …, from: …, to: …}` into config/envoy.yaml. Then the name and the password of an account that
may send: at large providers an app password of its own."""

    def try_it(self, places: Places, secrets: Mapping[str, str]) -> str:
        """Sign in and send nothing."""
        part = config.for_looking(places, "envoy")[0].get("email")
        if part is None:
            raise ServiceRefused(service=NAME, why="config/envoy.yaml has no section `email` that names it")
        if not secrets.get(part["user_env"]):
            raise ServiceRefused(service=NAME, why=f".env has no {part['user_env']}, which email.user_env names")
        try:
            with signed_in(part, secrets, SECONDS):
                return f"{part['host']} takes the account; mail goes to {part['to']}"
        except smtplib.SMTPAuthenticationError as error:
            raise ServiceRefused(service=NAME, why=f"it does not take the password ({error.smtp_code})") from None
        except (OSError, smtplib.SMTPException) as error:
            raise ServiceDown(service=NAME, why=f"{type(error).__name__}: {error}"[:200]) from None


@contextmanager
def signed_in(part: Mapping[str, Any], secrets: Mapping[str, str], seconds: float) -> Iterator[smtplib.SMTP]:
    """Yield a connection that is greeted, encrypted and signed in; an error of its end is ignored.

    ServiceRefused when the password could be read on the way.
    """
    host, port, security = part["host"], part["port"], part["security"]
    if security == "none" and host not in loopback.HOSTS:
        raise ServiceRefused(service=NAME, why="email.security: none is for a server on this machine")
    context = ssl.create_default_context()
    if security == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=seconds, context=context)
    else:
        server = smtplib.SMTP(host, port, timeout=seconds)
    try:
        if security == "starttls":
            server.starttls(context=context)
        if user := secrets.get(part["user_env"], ""):
            server.login(user, secrets.get(part["password_env"], ""))
        yield server
        with suppress(OSError, smtplib.SMTPException):
            server.quit()
    finally:
        server.close()
