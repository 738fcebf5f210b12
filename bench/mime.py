"""The codec of the council's messages beside the standard library's `email`, and how long it takes to start."""

from __future__ import annotations

import email
import subprocess
import sys
from collections.abc import Callable
from email import policy
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.figures import Row, interleaved, median, per_second, ratio, row, seconds
from kingdom.base.home.places import find_codec
from kingdom.council import mime

ABOUT = (
    "One message of the council with twelve headers and a body of 1 kB, in memory. The peer is Python's own `email` "
    "with its fastest policy, `compat32`. Starting is the whole program, `parse` of that message, beside "
    "`python3 -c pass` of the same interpreter."
)
BODY = "".join(f'- task_id: "task_{number:03d}"\n  title: "タスク"\n' for number in range(24))
FIELDS: dict[str, Any] = {
    "from_agent": "coordinator",
    "to_agents": ["ignitian_1"],
    "msg_type": "task_list",
    "priority": "high",
    "thread_id": "task-20260210-001",
    "repo": "owner/repo",
    "issue": "42",
    "body": f"tasks:\n{BODY}",
}
FASTER, SLOWEST_START = 5.0, 2.0


def run(quick: bool) -> dict[str, Any]:
    rounds, times = (3, 300) if quick else (9, 1_000)
    raw = mime.build_message(**FIELDS)
    assert email.message_from_string(raw).get_payload() == mime.extract_body(raw) == FIELDS["body"]
    rows = [_beside(name, rounds, times, *pair) for name, pair in _pairs(raw).items()]
    return {"title": "Messages of the council", "about": ABOUT, "rows": [*rows, *_starts(raw, 3 if quick else 25)]}


def _pairs(raw: str) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Return of each operation ours and the standard library's."""
    data = raw.encode()
    return {
        "parse": (lambda: mime.parse_message(data.decode("utf-8", "replace")), lambda: _parsed(data)),
        "build": (lambda: mime.build_message(**FIELDS).encode(), _built),
        "change a header": (
            lambda: mime.update_header(data.decode("utf-8", "surrogateescape"), "X-IGNITE-Priority", "low").encode(),
            lambda: _edited(data, "X-IGNITE-Priority", "low"),
        ),
        "add a header": (
            lambda: mime.update_status(data.decode("utf-8", "surrogateescape"), "delivered").encode(),
            lambda: _edited(data, "X-IGNITE-Status", "delivered"),
        ),
        "remove a header": (
            lambda: mime.remove_header(data.decode("utf-8", "surrogateescape"), "X-IGNITE-Priority").encode(),
            lambda: _edited(data, "X-IGNITE-Priority", None),
        ),
    }


def _parsed(data: bytes) -> dict[str, object]:
    message = email.message_from_bytes(data, policy=policy.compat32)
    return {**{name: str(value) for name, value in message.items()}, "body": message.get_payload(decode=True)}


def _built() -> bytes:
    message = EmailMessage(policy=policy.compat32)
    for name, value in (
        ("MIME-Version", "1.0"),
        ("Message-ID", make_msgid(domain="ignite.local")),
        ("From", FIELDS["from_agent"]),
        ("To", ", ".join(FIELDS["to_agents"])),
        ("Date", formatdate(localtime=True)),
        ("X-IGNITE-Type", FIELDS["msg_type"]),
        ("X-IGNITE-Priority", FIELDS["priority"]),
        ("X-IGNITE-Thread-ID", FIELDS["thread_id"]),
        ("X-IGNITE-Repository", FIELDS["repo"]),
        ("X-IGNITE-Issue", FIELDS["issue"]),
        ("Content-Type", "text/x-yaml; charset=utf-8"),
        ("Content-Transfer-Encoding", "8bit"),
    ):
        message[name] = value
    message.set_payload(FIELDS["body"].encode().decode("ascii", "surrogateescape"))
    return message.as_bytes()


def _edited(data: bytes, name: str, value: str | None) -> bytes:
    message = email.message_from_bytes(data, policy=policy.compat32)
    if value is None:
        del message[name]
    elif name in message:
        message.replace_header(name, value)
    else:
        message[name] = value
    return message.as_bytes()


def _beside(name: str, rounds: int, times: int, ours: Callable[[], object], theirs: Callable[[], object]) -> Row:
    def rate(work: Callable[[], object]) -> float:
        def again() -> None:
            for _ in range(times):  # nothing is kept: the collector would go through it again and again
                work()

        return per_second(times, again)

    found = interleaved(rounds, {"ours": lambda: rate(ours), "theirs": lambda: rate(theirs)})
    times_faster = ratio(found["ours"], found["theirs"])
    return row(
        name,
        goal=f"≥ {FASTER:g}",
        met=times_faster >= FASTER,
        ours=median(found["ours"]),
        unit="/s",
        floor=median(found["theirs"]),
        floor_is="`email`",
        ratio=times_faster,
    )


def _starts(raw: str, rounds: int) -> list[Row]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "task_list_1770263544123456.mime"
        path.write_text(raw)
        codec = str(find_codec())
        calls = {
            "parse": [codec, "parse", str(path)],
            "update-status": [codec, "update-status", str(path), "delivered"],
            "python": ["-c", "pass"],
        }
        contestants = {name: lambda words=words: seconds(lambda: _call(words)) * 1000 for name, words in calls.items()}  # type: ignore[misc]
        found = interleaved(rounds, contestants)
    rows = []
    for name in ("parse", "update-status"):
        compared = ratio(found[name], found["python"])
        rows.append(
            row(
                f"start and `{name}`",
                goal=f"≤ {SLOWEST_START:g}" if name == "parse" else "",
                met=compared <= SLOWEST_START if name == "parse" else None,
                ours=median(found[name]),
                unit="ms",
                floor=median(found["python"]),
                floor_is="`python3 -c pass`",
                ratio=compared,
            )
        )
    return rows


def _call(words: list[str]) -> None:
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
