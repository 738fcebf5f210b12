"""A dead letter says enough and always fits."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from kingdom.hall.topics import dead_letters
from kingdom.hall.topics.base import LARGEST_EVENT, TopicRecord


@pytest.mark.parametrize("value", [b"", b"\xff\x00", b'{"content":"\\ud800"}', b"x" * LARGEST_EVENT])
def test_it_holds_position_reason_digest_and_the_beginning(value: bytes) -> None:
    letter = dead_letters.of(TopicRecord("chat.v1", "0:7", "room", value), "no such room", 0.0)
    told = json.loads(letter)
    assert (told["topic"], told["position"], told["reason"]) == ("chat.v1", "0:7", "no such room")
    assert (told["size"], told["sha256"]) == (len(value), hashlib.sha256(value).hexdigest())
    assert base64.b64decode(told["head"]) == value[:65536]
    assert len(letter) < 100_000


def test_a_reason_of_any_length_and_kind_is_kept_as_far_as_it_fits() -> None:
    told = json.loads(dead_letters.of(TopicRecord("t", "0:1", "k" * 9999, b""), "왕\ud800" * 9999, 0.0))
    assert 0 < len(told["reason"]) <= 1000
    assert len(told["key"]) <= 1000
