"""The codec of the council's messages beside the standard library's `email`, and how long it takes to start."""

from __future__ import annotations

import email
import subprocess
import sys
from collections.abc import Callable
from email import policy
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from functools import partial
from typing import Any

from bench.figures import Found, interleaved, per_second, seconds
from bench.homes import folder
from kingdom.base.home.places import find_codec
from kingdom.council import mime

BODY = "tasks:\n" + "".join(f'- task_id: "task_{number:03d}"\n  title: "タスク"\n' for number in range(24))
ABOUT: dict[str, Any] = {"from_agent": "coordinator", "to_agents": ["ignitian_1"], "msg_type": "task_list"}
THREAD = {"priority": "high", "thread_id": "task-20260210-001", "repo": "owner/repo", "issue": "42"}
IN_THREAD = ("Priority", "Thread-ID", "Repository", "Issue")
FIELDS = {**ABOUT, **THREAD, "body": BODY}


def run(quick: bool) -> Found:
    found = Found()
    rounds, times = (3, 300) if quick else (9, 1_000)
    raw = mime.build_message(**FIELDS)
    assert email.message_from_string(raw).get_payload() == mime.extract_body(raw) == BODY
    for name, pair in _pairs(raw.encode()).items():
        named = dict(zip(("messages", "email"), pair, strict=True))
        found.add_all(name, interleaved(rounds, {what: partial(_rate, times, work) for what, work in named.items()}))
    _starts(found, raw, 3 if quick else 25)
    return found


def _pairs(data: bytes) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return of each operation ours and the standard library's."""
    text = lambda: data.decode("utf-8", "surrogateescape")  # noqa: E731
    low, name, status = "low", "X-IGNITE-Priority", "X-IGNITE-Status"
    return {
        "parse": (lambda: mime.parse_message(data.decode("utf-8", "replace")), lambda: _parsed(data)),
        "build": (lambda: mime.build_message(**FIELDS).encode(), _built),
        "change a header": (lambda: mime.update_header(text(), name, low).encode(), lambda: _edited(data, name, low)),
        "add a header": (
            lambda: mime.update_status(text(), "delivered").encode(),
            lambda: _edited(data, status, "delivered"),
        ),
        "remove a header": (lambda: mime.remove_header(text(), name).encode(), lambda: _edited(data, name, "")),
    }


def _parsed(data: bytes) -> dict[str, object]:
    message = email.message_from_bytes(data, policy=policy.compat32)
    return {**{name: str(value) for name, value in message.items()}, "body": message.get_payload(decode=True)}


def _built() -> bytes:
    message = EmailMessage(policy=policy.compat32)
    head = {"MIME-Version": "1.0", "Message-ID": make_msgid(domain="ignite.local"), "From": FIELDS["from_agent"]}
    head |= {"To": ", ".join(FIELDS["to_agents"]), "Date": formatdate(localtime=True), "X-IGNITE-Type": "task_list"}
    head |= {f"X-IGNITE-{name}": value for name, value in zip(IN_THREAD, THREAD.values(), strict=True)}
    head |= {"Content-Type": "text/x-yaml; charset=utf-8", "Content-Transfer-Encoding": "8bit"}
    for name, value in head.items():
        message[name] = value
    message.set_payload(BODY.encode().decode("ascii", "surrogateescape"))
    return message.as_bytes()


def _edited(data: bytes, name: str, value: str) -> bytes:
    message = email.message_from_bytes(data, policy=policy.compat32)
    if not value:
        del message[name]
    elif name in message:
        message.replace_header(name, value)
    else:
        message[name] = value
    return message.as_bytes()


def _rate(times: int, work: Callable[[], object]) -> float:
    def again() -> None:
        for _ in range(times):  # nothing is kept: the collector would go through it again and again
            work()

    return per_second(times, again)


def _starts(found: Found, raw: str, rounds: int) -> None:
    path = folder() / "task_list_1770263544123456.mime"
    path.write_text(raw)
    codec = str(find_codec())
    calls = {
        "start and `parse`": [codec, "parse", str(path)],
        "start and `update-status`": [codec, "update-status", str(path), "delivered"],
        "python3 -c pass": ["-c", "pass"],
    }
    found.add_all("", interleaved(rounds, {name: partial(_milliseconds, words) for name, words in calls.items()}))


def _milliseconds(words: list[str]) -> float:
    return seconds(lambda: subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)) * 1e3
