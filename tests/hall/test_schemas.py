"""The schemas of the hall are sound, and the least that each asks for fits."""

from __future__ import annotations

import jsonschema
import pytest

from kingdom.base.home import schemas
from kingdom.base.home.places import find_data
from tests.hall.database.test_records import CREATED, PERSISTED

COMMAND = {
    "commandId": "0b8f1c1e-0000-4000-8000-000000000001",
    "command": "openRoom",
    "producedAt": "2026-11-19T10:00:00.000Z",
    "roomId": "0b8f1c1e-0000-4000-8000-000000000002",
    "name": "a room",
    "kind": "task",
    "clientMsgId": "0b8f1c1e-0000-4000-8000-000000000003",
    "content": "hello",
}


LEAST = {"message-created": CREATED, "message-persisted": PERSISTED, "command": COMMAND}


ALL = sorted(path.name.removesuffix(".schema.json") for path in (find_data() / "schemas/hall").glob("*.json"))


@pytest.mark.parametrize("name", ALL)
def test_every_schema_is_a_sound_one(name: str) -> None:
    jsonschema.Draft7Validator.check_schema(schemas.load(f"hall/{name}"))
    schemas.check(f"hall/{name}", LEAST.get(name, {}))
