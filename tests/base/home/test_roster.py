"""One more role is a folder and a row of the process table, with its configuration."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from kingdom.base.home import config, roster, schemas
from kingdom.base.home.places import Places, find_data, find_schema
from kingdom.base.home.roster import ROLES, general
from tests.fixtures import founded


@pytest.mark.parametrize("name", [*ROLES, "general"])
def test_every_role_has_a_program_whose_configuration_is_there(name: str) -> None:
    row = ROLES.get(name) or general("gen-a")
    program = find_spec(row.module if row.name != "council" else "kingdom.council.__main__")
    assert program is not None
    assert program.origin is not None
    calls = [node for node in ast.walk(ast.parse(Path(program.origin).read_text())) if isinstance(node, ast.Call)]
    (spec,) = [call for call in calls if ast.unparse(call.func).endswith("RoleSpec")]
    config = ast.literal_eval(spec.args[1])
    assert find_schema(f"config/{config}").is_file()
    assert (Places(find_data()).default_config / f"{config}.yaml").is_file()


def test_the_roles_that_have_a_switch_are_those_of_system_yaml() -> None:
    switches = set(schemas.load("config/system")["properties"]["roles"]["properties"])
    assert switches == {name for name, row in ROLES.items() if row.has_switch}


def test_which_roles_run_unless_something_else_is_said() -> None:
    assert [row.name for row in roster.rows(["gen-b", "gen-a"])] == [
        *("chamberlain", "envoy", "king", "sentinel"),
        *("gen-a", "gen-b"),
    ]
    assert "mailbox" in [row.name for row in roster.rows([], frozenset({"mailbox"}))]
    assert not [
        name
        for name, row in ROLES.items()
        if row.has_switch and name not in ("council", "gateway", "mailbox", "worker")
    ]


@pytest.mark.parametrize(
    ("word", "state"), [("down\n", "down"), ("quarantined", "quarantined"), ("huh", "up"), (None, "up")]
)
def test_a_role_is_wanted_unless_its_file_says_otherwise(home: Path, word: str | None, state: str) -> None:
    places = founded(home)
    places.wanted_folder.mkdir(parents=True, exist_ok=True)
    if word is not None:
        places.wanted("king").write_text(word)
    assert roster.desired_state(places, "king") == state


def test_instances_of_the_hall_run_when_their_role_is_switched_on(home: Path) -> None:
    places = founded(
        home,
        system={"roles": {"gateway": True, "worker": False}},
        hall={"instances": {"gateway": {"b": 7701}, "worker": ["c"]}},
    )
    rows = {row.name: row.argv for row in roster.roles_of(places, config.load(places, "system"))}
    assert rows["gateway-b"] == ("-m", "kingdom.gateway", "b")
    assert "worker-c" not in rows
    asked = ("gateway", "gateway-b", "gateway-x", "worker", "worker-c", "gen-briefing")
    assert [name for name in asked if roster.is_switched_on(places, name)] == ["gateway", "gateway-b", "gen-briefing"]


@pytest.mark.parametrize(
    ("written", "state"),
    [
        ("down\n", "down"),
        ("quarantined\n", "quarantined"),
        ("up\n", "up"),
        ("no such word\n", "up"),
        ("down" + " " * 60, "down"),
        ("down" + " " * 61, "up"),
        (None, "up"),
    ],
)
def test_what_a_role_should_do_is_what_its_note_says(home: Path, written: str | None, state: str) -> None:
    places = founded(home)
    if written is not None:
        places.wanted("king").parent.mkdir(parents=True, exist_ok=True)
        places.wanted("king").write_text(written)
    assert roster.desired_state(places, "king") == state
