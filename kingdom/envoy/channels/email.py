"""E-mail: one message for each post, those of a task under its first. It only speaks."""

from __future__ import annotations

import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime

from kingdom.connections.email import LOOPBACK
from kingdom.envoy.channels.base import Channel, ChannelDown, ChannelRefused, Draft, Kit, Post
from kingdom.envoy.channels.journal import Journal
from kingdom.words import one_line, printable

CALL_SECONDS = 15
LONGEST_SUBJECT = 120


class Email(Channel):
    waits = True

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._journal = Journal(kit)

    def post(self, draft: Draft) -> Post:
        letter = self._letter(draft)
        try:
            with self._server() as server:
                server.send_message(letter)
        except smtplib.SMTPAuthenticationError as error:
            raise ChannelDown(channel="the mail server", why=f"it refuses the password ({error.smtp_code})") from None
        except smtplib.SMTPRecipientsRefused as error:
            codes = {code for code, _ in error.recipients.values()}
            raise _refusal(min(codes), f"it refuses {', '.join(error.recipients)}") from None
        except smtplib.SMTPResponseException as error:
            raise _refusal(error.smtp_code, f"{error.smtp_code} {str(error.smtp_error)[:100]}") from None
        except (OSError, smtplib.SMTPException) as error:
            raise ChannelDown(channel="the mail server", why=f"{type(error).__name__}: {error}"[:200]) from None
        return self._journal.add(draft, letter["Message-ID"])

    def find(self, draft: Draft) -> Post | None:
        """Return the post that was noted here. One sent twice has the same Message-ID, by which readers know it."""
        return self._journal.find(draft)

    def _server(self) -> smtplib.SMTP:
        """Return a connection that is greeted, encrypted and signed in."""
        config, secrets = self._kit.config, self._kit.secrets
        host, port, security = config["host"], config["port"], config["security"]
        if security == "none" and host not in LOOPBACK:
            raise ChannelDown(channel="the mail server", why="email.security: none is for a server on this machine")
        if security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=CALL_SECONDS, context=_context())
        else:
            server = smtplib.SMTP(host, port, timeout=CALL_SECONDS)
        try:
            if security == "starttls":
                server.starttls(context=_context())
            user, password = secrets.get(config["user_env"], ""), secrets.get(config["password_env"], "")
            if user:
                server.login(user, password)
        except BaseException:
            server.close()
            raise
        return server

    def _letter(self, draft: Draft) -> EmailMessage:
        config, text = self._kit.config, printable(draft.text)
        letter = EmailMessage()
        letter["From"] = config["from"]
        letter["To"] = config["rooms"].get(draft.room, config["to"])
        letter["Subject"] = one_line(text, LONGEST_SUBJECT) or "(nothing)"
        letter["Date"] = format_datetime(datetime.fromtimestamp(self._kit.clock(), UTC))
        letter["Message-ID"] = f"<{draft.id}@{config['from'].rpartition('@')[2].strip('> ')}>"
        letter["Auto-Submitted"] = "auto-generated"
        if draft.thread is not None:
            letter["In-Reply-To"] = letter["References"] = draft.thread
        letter.set_content(text)
        return letter


def _refusal(code: int, why: str) -> ChannelRefused:
    """Return what a server's code means: those from 500 on are for good."""
    kind = ChannelRefused if code >= 500 else ChannelDown
    return kind(channel="the mail server", why=why)


def _context() -> ssl.SSLContext:
    return ssl.create_default_context()
