"""Drawn messages, and the messages that Python tests its own library with: nothing but the intended change happens."""

from __future__ import annotations

import email
import importlib.util
import os
from email import policy
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kingdom.council import mime

CAMPAIGN = bool(os.environ.get("KINGDOM_CAMPAIGN"))
EXAMPLES = settings(max_examples=50_000 if CAMPAIGN else 100, deadline=None)

NAMES = st.sampled_from(["From", "to", "X-IGNITE-Status", "x-ignite-status", "X-IGNITE-Type", "Date", "X-A", "Y"])
VALUES = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12)
ENDINGS = st.sampled_from(["\n", "\r\n"])
LINES = ["From: a", "to: b", "X-IGNITE-Status: s", "x-ignite-status:t", "Y:", " more", "no header", "A B: c"]
PIECES = st.sampled_from([*LINES, *("\t", "\r", ":", "\x0b", "\x85", "\u2028", "\udcff", "é", "\x00")])
CHAOS = st.lists(st.one_of(PIECES, ENDINGS, st.text(max_size=3)), max_size=14).map("".join)


@EXAMPLES
@given(raw=CHAOS)
def test_a_message_split_and_joined_is_the_same(raw: str) -> None:
    fields, blank, body = mime.split(raw)
    assert "".join(text for _, text in fields) + blank + body == raw
    assert mime.extract_body(raw) == body
    mime.parse_message(raw)


@EXAMPLES
@given(st.lists(st.tuples(NAMES, VALUES), max_size=8), st.text(max_size=20))
def test_lines_that_end_at_lf_and_at_crlf_are_read_alike(headers: list[tuple[str, str]], body: str) -> None:
    lines = [f"{name}: {value}" for name, value in headers]
    assert mime.parse_message("\n".join([*lines, "", body])) == mime.parse_message("\r\n".join([*lines, "", body]))


@EXAMPLES
@given(raw=CHAOS, name=NAMES, value=VALUES)
def test_an_edit_that_is_undone_leaves_the_same(raw: str, name: str, value: str) -> None:
    fields, _, body = mime.split(raw)
    lines = [text for known, text in fields if known == name.lower()]
    is_cut_off = bool(fields) and fields[-1][1].endswith("\r")
    assume(not is_cut_off or (lines and fields[-1][0] != name.lower()))  # else refused
    edited = mime.update_header(raw, name, value)
    assert mime.extract_body(edited) == body
    again = [text for known, text in mime.split(edited)[0] if known == name.lower()]
    assert len(again) == 1
    if not lines:
        assert mime.remove_header(edited, name) == raw
    elif (
        len(lines) == 1
        and _value(lines[0]).isprintable()
        and _without_ending(lines[0]) == f"{lines[0].partition(':')[0]}: {_value(lines[0])}"
    ):
        assert mime.update_header(edited, name, _value(lines[0])) == raw


def _value(line: str) -> str:
    return _without_ending(line).partition(":")[2][1:]


def _without_ending(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


@st.composite
def well_formed(draw: st.DrawFn) -> tuple[list[tuple[str, str]], bytes]:
    """Draw headers of different names, some of them folded, and the bytes of a message with them."""
    ending = draw(ENDINGS)
    plain = st.text("abc é目=?/<>@,;.-", max_size=20).map(str.strip)
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique_by=str.lower))
    headers = []
    for name in names:
        value = draw(plain)
        folded = draw(st.lists(plain.filter(bool), max_size=2)) if value else []
        headers.append((name, f"{ending} ".join([value, *folded])))
    body = draw(st.binary(max_size=40))
    head = "".join(f"{name}: {value}{ending}" for name, value in headers) + ending
    return headers, head.encode() + body


@EXAMPLES
@given(message=well_formed(), name=NAMES, value=st.text("abc é目<>@", min_size=1, max_size=12).map(str.strip))
def test_pythons_own_parser_sees_the_intended_change_alone(
    message: tuple[list[tuple[str, str]], bytes], name: str, value: str
) -> None:
    headers, raw = message
    text = raw.decode("utf-8", "surrogateescape")
    updated = mime.update_header(text, name, value).encode("utf-8", "surrogateescape")
    removed = mime.remove_header(text, name).encode("utf-8", "surrogateescape")
    before = seen(raw)
    small = name.lower()
    wanted = [(known, value if known == small else old) for known, old in before]
    assert seen(updated) == (wanted if small in dict(before) else [*before, (small, value)])
    assert seen(removed) == [(known, old) for known, old in before if known != small]
    assert len(before) == len(headers)


def seen(raw: bytes) -> list[tuple[str, str]]:
    """Return the headers as the standard library's parser of bytes sees them, and check that it sees the same body."""
    message = email.message_from_bytes(raw, policy=policy.compat32)
    body = mime.extract_body(raw.decode("utf-8", "surrogateescape"))
    assert with_one_ending(message._payload) == with_one_ending(body)  # type: ignore[attr-defined]
    headers = message._headers  # type: ignore[attr-defined]
    return [(name.lower(), value.encode("utf-8", "surrogateescape").decode().strip(" ")) for name, value in headers]


def with_one_ending(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape").replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _test_data() -> list[Path]:
    try:
        spec = importlib.util.find_spec("test.test_email")
    except ModuleNotFoundError:
        return []
    return sorted(Path(spec.origin).with_name("data").glob("*.txt")) if spec and spec.origin else []


@pytest.mark.skipif(not _test_data(), reason="THIS PYTHON HAS NO TEST DATA OF ITS EMAIL LIBRARY")
def test_pythons_own_messages_survive_edits() -> None:
    for path in _test_data():
        raw = path.read_bytes().decode("utf-8", "surrogateescape")
        fields, blank, body = mime.split(raw)
        assert "".join(text for _, text in fields) + blank + body == raw, path.name
        edited = mime.update_header(raw, "X-IGNITE-Status", "delivered")
        assert mime.parse_message(edited)["status"] == "delivered", path.name
        assert mime.remove_header(edited, "X-IGNITE-Status") == raw, path.name
        assert mime.extract_body(edited) == body, path.name
