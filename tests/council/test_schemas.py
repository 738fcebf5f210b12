"""The schemas of the council are sound, and the least that each asks for fits."""

from __future__ import annotations

import jsonschema
import pytest

from kingdom.base.home import schemas
from kingdom.base.home.places import find_data
from tests.council.test_bodies import LEAST

ALL = sorted(path.name.removesuffix(".schema.json") for path in (find_data() / "schemas/council").glob("*.json"))


@pytest.mark.parametrize("name", ALL)
def test_every_schema_is_a_sound_one(name: str) -> None:
    jsonschema.Draft7Validator.check_schema(schemas.load(f"council/{name}"))
    schemas.check(f"council/{name}", LEAST.get(name, {}))
