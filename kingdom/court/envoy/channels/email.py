"""E-mail: one mail for each post; a task's mails reply to its first. It only sends."""

from __future__ import annotations

import smtplib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime

from kingdom.base.words import one_line, printable
from kingdom.court.connections import email
from kingdom.court.connections.base import ServiceRefused
from kingdom.court.envoy.channels.base import Channel, ChannelDown, ChannelKit, ChannelRefused, Heard, Post, PostDraft
from kingdom.court.envoy.channels.journal import PostJournal

CALL_SECONDS = 15
LONGEST_SUBJECT = 120


class EmailChannel(Channel):
    waits = True

    def __init__(self, kit: ChannelKit) -> None:
        self._kit = kit
        self._journal = PostJournal(kit)
        #: Sentences about addresses that were refused, for the envoy's own thread.
        self._unreported: deque[str] = deque()
        self._reported: set[str] = set()

    def post(self, draft: PostDraft) -> Post:
        letter = self._letter(draft)
        with ExitStack() as held:
            with _explained():
                server = held.enter_context(email.signed_in(self._kit.config, self._kit.secrets, CALL_SECONDS))
                refused = server.send_message(letter)
            # Noted before QUIT: it is sent, whatever the server answers to that.
            post = self._journal.add(draft, letter["Message-ID"])
        self._note_refused(refused)
        return post

    def find(self, draft: PostDraft) -> Post | None:
        """Return the post that was noted here. One sent twice has the same Message-ID, by which readers know it."""
        return self._journal.find(draft)

    def read(self) -> Sequence[Heard]:
        """Return nothing: mail is not read. Report pending warnings."""
        while self._unreported:
            self._kit.tell(self._unreported.popleft())
        return ()

    def _note_refused(self, refused: Mapping[str, tuple[int, bytes]]) -> None:
        """Log, once for each address, that it refused a mail that others have got."""
        for address, (code, said) in refused.items():
            if address not in self._reported:
                self._reported.add(address)
                why = one_line(f"{code} {said.decode('utf-8', 'replace')}", 100)
                self._unreported.append(f"the mail server refuses {address} ({why}); the other addresses have the mail")

    def _letter(self, draft: PostDraft) -> EmailMessage:
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


@contextmanager
def _explained() -> Iterator[None]:
    """Raise what a server's refusal means to the envoy."""
    try:
        yield
    except ServiceRefused as error:
        raise ChannelDown(channel=email.NAME, why=str(error.facts["why"])) from None
    except smtplib.SMTPAuthenticationError as error:
        raise ChannelDown(channel=email.NAME, why=f"it refuses the password ({error.smtp_code})") from None
    except smtplib.SMTPRecipientsRefused as error:
        codes = {code for code, _ in error.recipients.values()}
        raise _refusal(min(codes), f"it refuses {', '.join(error.recipients)}") from None
    except smtplib.SMTPResponseException as error:
        raise _refusal(error.smtp_code, f"{error.smtp_code} {str(error.smtp_error)[:100]}") from None
    except (OSError, smtplib.SMTPException) as error:
        raise ChannelDown(channel=email.NAME, why=f"{type(error).__name__}: {error}"[:200]) from None


def _refusal(code: int, why: str) -> ChannelRefused:
    """Return what a server's code means: those from 500 on are for good."""
    kind = ChannelRefused if code >= 500 else ChannelDown
    return kind(channel=email.NAME, why=why)
