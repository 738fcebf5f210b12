"""Messages as text: what is built, read and edited, case by case."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kingdom.council import mime

PLAIN = "MIME-Version: 1.0\nFrom: user\nTo: leader\nX-IGNITE-Type: user_goal\n\ngoal: x\n"
ALL = {
    "from_agent": "coordinator",
    "to_agents": ["ignitian_1", "ignitian_2"],
    "msg_type": "task_assignment",
    "cc": ["leader"],
    "priority": "high",
    "thread_id": "T1",
    "in_reply_to": "<1.2.a@ignite.local>",
    "repo": "owner/repo",
    "issue": "42",
    "status": "queued",
    "body": "task_id: 1\n",
}


def built(**fields: Any) -> str:
    return mime.build_message(**{"from_agent": "user", "to_agents": ["leader"], "msg_type": "user_goal", **fields})


def headers(raw: str) -> list[str]:
    return [line.partition(":")[0] for line in raw.partition("\n\n")[0].split("\n")]


def test_headers_stand_in_their_order() -> None:
    wanted = (
        "MIME-Version Message-ID From To Cc Date X-IGNITE-Type X-IGNITE-Priority X-IGNITE-Thread-ID In-Reply-To "
        "X-IGNITE-Repository X-IGNITE-Issue X-IGNITE-Status Content-Type Content-Transfer-Encoding"
    )
    assert headers(mime.build_message(**ALL)) == wanted.split()


@pytest.mark.parametrize("empty", ["", None])
def test_what_is_empty_writes_no_header(empty: str | None) -> None:
    names = ("cc", "thread_id", "in_reply_to", "repo", "issue", "status", "priority")
    raw = built(**dict.fromkeys(names, empty))
    assert raw == re.sub(r"X-IGNITE-Priority: .*", "X-IGNITE-Priority: normal", raw)
    wanted = "MIME-Version Message-ID From To Date X-IGNITE-Type X-IGNITE-Priority Content-Type"
    assert headers(raw) == [*wanted.split(), "Content-Transfer-Encoding"]


@pytest.mark.parametrize(
    ("pattern", "fields"),
    [
        (r"MIME-Version: 1\.0$", {}),
        (r"Message-ID: <\d{10}\.\d+\.[0-9a-f]+@ignite\.local>$", {}),
        (r"Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}$", {}),
        (r"Content-Type: text/x-yaml; charset=utf-8$", {}),
        (r"Content-Transfer-Encoding: 8bit$", {}),
        (r"To: a, b, c$", {"to_agents": ["a,b", " c "]}),
        (r"To: leader$", {"to_agents": "leader"}),
        (r"Cc: a, b$", {"cc": "a,b"}),
        (r"X-IGNITE-Issue: 42$", {"issue": 42}),
        (r"X-IGNITE-Repository: 所有者/倉庫$", {"repo": "所有者/倉庫"}),
        (r"X-IGNITE-Thread-ID: x{3000}$", {"thread_id": "x" * 3000}),
    ],
)
def test_a_header_is_written_on_one_line_and_unencoded(pattern: str, fields: dict[str, Any]) -> None:
    assert re.search(f"^{pattern}", built(**fields), re.MULTILINE)


@pytest.mark.parametrize("body", ["", "a: 1", "a: 1\n", "\n\n a: 1\r\n\r\n", "- x", "目標: 日本語\n", "a: \x0b\u2028b"])
def test_the_body_follows_exactly_as_given(body: str) -> None:
    raw = built(body=body)
    assert raw.partition("\n\n")[2] == body
    assert mime.extract_body(raw) == body
    assert mime.parse_message(raw)["body"] == body


def test_ids_differ() -> None:
    assert len({mime.parse_message(built())["message_id"] for _ in range(1000)}) == 1000


CONTROLS = ["\r", "\n", "\x0b", "\x0c", "\x00", "\t", "\x1b", "\x7f", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_character_in_a_value_is_refused(control: str) -> None:
    value = f"a{control}X-IGNITE-Status: b"
    for field in "from_agent to_agents msg_type cc priority thread_id in_reply_to repo status".split():
        with pytest.raises(ValueError, match="control character"):
            built(**{field: [value] if field in ("to_agents", "cc") else value})
    for edit in (
        lambda: mime.update_header(PLAIN, "X-A", value),
        lambda: mime.update_status(PLAIN, value),
        lambda: mime.update_status(PLAIN, "ok", **{"X-A": value}),
    ):
        with pytest.raises(ValueError, match="control character"):
            edit()


@pytest.mark.parametrize("name", ["", "A B", "A:B", "A\n", "Ä", "A\t"])
def test_what_is_no_name_of_a_header_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a header"):
        mime.update_header(PLAIN, name, "x")
    with pytest.raises(ValueError, match="no name of a header"):
        mime.remove_header(PLAIN, name)


KEYS = (
    "message_id from to cc date in_reply_to type priority thread_id repository issue status content_type body".split()
)


@pytest.mark.parametrize("raw", ["", "\n", "no mime at all", "key: value\nmore\n", "\n\nonly a body", ":\n", " a\n"])
def test_every_key_is_there_whatever_is_read(raw: str) -> None:
    found = mime.parse_message(raw)
    assert list(found) == KEYS
    assert found["to"] == found["cc"] == []
    assert found["priority"] == "normal"
    assert all(found[key] == "" for key in KEYS if key not in ("to", "cc", "priority", "body"))


# A message · a key · its value
READ: list[tuple[str, str, str | list[str]]] = [
    ("FROM: a\n\n", "from", "a"),
    ("from:a\n\n", "from", "a"),
    ("From:  \t a \t\r\n\r\n", "from", "a"),
    ("From: a\nfrom: b\n\n", "from", "b"),
    ("To: a,b ,  c\n\n", "to", ["a", "b", "c"]),
    ("To: a,\n b\n\n", "to", ["a", "b"]),
    ("To: a,\r\n\tb\r\n\r\n", "to", ["a", "b"]),
    ("To:\n\n", "to", []),
    ("Cc: a\n\n", "cc", ["a"]),
    ("X-IGNITE-Priority:\n\n", "priority", "normal"),
    ("X-IGNITE-Priority: critical\n\n", "priority", "critical"),
    ("X-IGNITE-Type: a\n b\n\n", "type", "a b"),
    ("X-IGNITE-Retry-Count: 3\n\n", "retry_count", "3"),
    ("X-IGNITE-Processed-At: 2026-02-10T12:00:00Z\n\n", "processed_at", "2026-02-10T12:00:00Z"),
    ("X-IGNITE-Next-Retry-After: t\n\n", "next_retry_after", "t"),
    ("X-IGNITE-Repository: 所有者/倉庫\n\n", "repository", "所有者/倉庫"),
    ("X-IGNITE-From: me\nFrom: a\n\n", "from", "a"),
    ("X-IGNITE-From: me\nFrom: a\n\n", "x_ignite_from", "me"),
    ("X-IGNITE-To: me\n\n", "to", []),
    ("X-IGNITE-To: me\n\n", "x_ignite_to", "me"),
    ("X-IGNITE-Body: me\n\nbody", "body", "body"),
    ("X-IGNITE-Body: me\n\nbody", "x_ignite_body", "me"),
    ("X-IGNITE-Message-ID: me\n\n", "x_ignite_message_id", "me"),
    ("From: a\x0bX-IGNITE-Type: b\n\n", "type", ""),
    ("From: a\x85X-IGNITE-Type: b\n\n", "type", ""),
    ("From: a\u2028X-IGNITE-Type: b\n\n", "type", ""),
    ("From: a\rX-IGNITE-Type: b\n\n", "type", ""),
    ("From: a\n\r\nbody", "body", "body"),
    ("From: a\n \nTo: b\n\nbody", "body", "body"),
    ("From: a\n\nTo: b\n\nc", "body", "To: b\n\nc"),
    ("From: a", "body", ""),
    ("To: a\nTo\n\n", "to", ["a"]),
    ("To: a\n: b\n\n", "to", ["a"]),
    ("From me Mon Feb 10 12:00:00 2026\nTo: b\n\n", "to", ["b"]),
]


@pytest.mark.parametrize(("raw", "key", "value"), READ)
def test_a_message_is_read(raw: str, key: str, value: str | list[str]) -> None:
    assert mime.parse_message(raw)[key] == value


def test_further_headers_come_in_the_order_of_the_file() -> None:
    raw = "X-IGNITE-B: 1\nX-IGNITE-A: 2\nX-Other: 3\nX-IGNITE-B: 4\n\n"
    assert list(mime.parse_message(raw).items())[len(KEYS) :] == [("b", "4"), ("a", "2")]


# A message · a header · its value, None where it is removed · the message afterwards
EDITED: list[tuple[str, str, str | None, str]] = [
    ("A: 1\nB: 2\n\nbody", "A", "3", "A: 3\nB: 2\n\nbody"),
    ("A: 1\nB: 2\n\nbody", "a", "3", "A: 3\nB: 2\n\nbody"),
    ("A: 1\nB: 2\n\nbody", "C", "3", "A: 1\nB: 2\nC: 3\n\nbody"),
    ("A: 1\nB: 2\n\nbody", "B", None, "A: 1\n\nbody"),
    ("A: 1\nB: 2\n\nbody", "C", None, "A: 1\nB: 2\n\nbody"),
    ("A: 1\nB: 2\nA: 3\nA: 4\n\n", "A", "5", "A: 5\nB: 2\n\n"),
    ("A: 1\nB: 2\nA: 3\n\n", "A", None, "B: 2\n\n"),
    ("A: 1\n folded\n\tmore\nB: 2\n\n", "A", "3", "A: 3\nB: 2\n\n"),
    ("A: 1\n folded\nB: 2\n\n", "A", None, "B: 2\n\n"),
    ("B: 2\nA: 1\n folded\n\nbody", "C", "3", "B: 2\nA: 1\n folded\nC: 3\n\nbody"),
    ("A: 1\r\nB: 2\r\n\r\nbody\r\n", "A", "3", "A: 3\r\nB: 2\r\n\r\nbody\r\n"),
    ("A: 1\r\nB: 2\r\n\r\nbody\r\n", "C", "3", "A: 1\r\nB: 2\r\nC: 3\r\n\r\nbody\r\n"),
    ("A: 1\nB: 2\r\n\nbody", "C", "3", "A: 1\nB: 2\r\nC: 3\r\n\nbody"),
    ("A: 1\nB: 2\r\n\nbody", "A", "3", "A: 3\nB: 2\r\n\nbody"),
    ("A: 1\n", "B", "2", "A: 1\nB: 2\n"),
    ("A: 1", "B", "2", "A: 1\nB: 2"),
    ("A: 1\r\nB: 2", "C", "3", "A: 1\r\nB: 2\r\nC: 3"),
    ("A: 1\nB: 2", "B", "3", "A: 1\nB: 3"),
    ("A: 1\nB: 2", "B", None, "A: 1"),
    ("", "A", "1", "A: 1\n"),
    ("\r\nbody", "A", "1", "A: 1\r\n\r\nbody"),
    ("A: 1\n\n", "A", None, "\n"),
    ("A: 1\n\nA: 2\n\nA: 3", "A", "4", "A: 4\n\nA: 2\n\nA: 3"),
    ("A: 1\n\nB: 2", "B", None, "A: 1\n\nB: 2"),
    ("A: 1\n\n", "A", "", "A: \n\n"),
    ("A: 1\x85B: 2\n\n", "B", "3", "A: 1\x85B: 2\nB: 3\n\n"),
    ("A: \udcff\n\n\udcfe", "B", "3", "A: \udcff\nB: 3\n\n\udcfe"),
    ("no header\nA: 1\n\n", "A", "2", "no header\nA: 2\n\n"),
]


@pytest.mark.parametrize(("raw", "name", "value", "wanted"), EDITED)
def test_an_edit_changes_one_header_alone(raw: str, name: str, value: str | None, wanted: str) -> None:
    edited = mime.remove_header(raw, name) if value is None else mime.update_header(raw, name, value)
    assert edited == wanted


@pytest.mark.parametrize("raw", ["\r", "A: 1\nB: 2\r", " \r", "C: 2\r"])
def test_no_header_is_added_to_a_message_that_is_cut_off_within_a_lines_end(raw: str) -> None:
    with pytest.raises(ValueError, match="cut off"):
        mime.update_header(raw, "C", "3")


def test_a_status_comes_with_its_headers() -> None:
    edited = mime.update_status(PLAIN, "delivered", **{"X-IGNITE-Processed-At": "t", "From": "me", "raw": "x"})
    head, _, body = edited.partition("\n\n")
    assert head == (
        "MIME-Version: 1.0\nFrom: me\nTo: leader\nX-IGNITE-Type: user_goal\n"
        "X-IGNITE-Status: delivered\nX-IGNITE-Processed-At: t\nraw: x"
    )
    assert body == "goal: x\n"
