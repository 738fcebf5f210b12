"""Requests are read strictly, also those that look like our own client's."""

import json
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kingdom.base.disk.codec import parse_json
from kingdom.mq.mailbox.requests import Unreadable, read

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda part: st.lists(part, max_size=4) | st.dictionaries(TEXT, part, max_size=4),
    max_leaves=12,
)


def lay(folder: Path, data: bytes) -> str:
    (folder / "r.json").write_bytes(data)
    return "r.json"


def head(payload: str) -> bytes:
    return f'{{"requestId":"r","clientId":"me","command":"publish","payload":{payload}}}\n'.encode(
        "utf-8", "surrogatepass"
    )


@settings(deadline=None)
@given(st.dictionaries(TEXT, ANY, max_size=4))
def test_the_fast_reader_finds_what_the_strict_one_finds(
    tmp_path_factory: pytest.TempPathFactory, payload: dict[str, object]
) -> None:
    data = head(orjson.dumps(payload).decode())
    request = read(str(tmp_path_factory.getbasetemp()), lay(tmp_path_factory.getbasetemp(), data))
    assert request.payload == parse_json(data)["payload"]
    assert json.dumps(request.payload) == json.dumps(parse_json(data)["payload"])


@pytest.mark.parametrize(
    "payload",
    [
        '{"a":1,"a":2}',
        '{"a":{"b":1,"b":1}}',
        '{"a":NaN}',
        '{"a":1e999}',
        '{"a":"\\ud800"}',
        '{"a":"\ud800"}',
        '{"a":' + "[" * 300 + "]" * 300 + "}",
        '{"a":1}}',
        '{"a":1}\n{}',
    ],
)
def test_what_the_strict_reader_refuses_is_refused(tmp_path: Path, payload: str) -> None:
    with pytest.raises(Unreadable):
        read(str(tmp_path), lay(tmp_path, head(payload)))
