"""Call each operation of /openapi.json with inputs made from it: it answers as it says. Run by test_openapi.py."""

import uuid
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from kingdom.hall.gateway.openapi import DESCRIPTION
from tests.faults import trees
from tests.hall.gateway.halls import SECONDS, Hall, Person

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
pytest_plugins = ["schemathesis.pytest.plugin"]
EXAMPLES = 15 if trees.CAMPAIGN else 6
schema = schemathesis.openapi.from_dict(DESCRIPTION)


@pytest.fixture(scope="module")
def anna(hall: Hall) -> Person:
    return hall.person()


@pytest.fixture(scope="module")
def room(anna: Person) -> str:
    return anna.room()


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_answers_as_described(case: Any, hall: Hall, anna: Person, room: str) -> None:
    if case.path_parameters and uuid.uuid4().int % 2:
        case.path_parameters["id"] = room
    # Who signs out cannot ask for anything more.
    caller = hall.person() if case.path == "/auth/logout" else anna
    case.headers = {**(case.headers or {}), "Authorization": f"Bearer {caller.token}"}
    case.call_and_validate(base_url=hall.url, checks=CHECKS, timeout=SECONDS)
