"""The process table: every role that can run, in the order in which they start."""

from collections.abc import Mapping
from typing import Any

from kingdom import wings
from kingdom.base.disk.codec import read_json_or, text_of
from kingdom.base.home import config
from kingdom.base.home.places import Places
from kingdom.base.wing import RoleRow as RoleRow

ROLES: dict[str, RoleRow] = {
    "chamberlain": RoleRow("chamberlain", "kingdom.chamberlain", serves="keeps everything alive"),
    "envoy": RoleRow("envoy", "kingdom.envoy", serves="sends messages to people"),
    "king": RoleRow("king", "kingdom.king", serves="routes events to generals"),
    "sentinel": RoleRow("sentinel", "kingdom.sentinel", serves="watches GitHub, Jira and other sources of events"),
    **dict(sorted((row.name, row) for wing in wings.rows() for row in wing.roles)),
}


NEEDED_BY = {wing.works_for: wing.roles[0].name for wing in wings.rows() if wing.works_for}
"""Generals that another role works for: it runs where they are installed, unless system.yaml says otherwise."""
INSTANCED = {row.name: wing.instances_in for wing in wings.rows() if wing.instances_in for row in wing.roles}
"""Roles of which several may run, each under a name of its own, and the configuration with these names."""


def general(name: str) -> RoleRow:
    """Return the row of an installed general."""
    return RoleRow(name, "kingdom.general", argument=name, serves="a general")


def with_needed(places: Places, name: str) -> list[RoleRow]:
    """Return the row of an installed general, behind that of the role which works for it if one should run."""
    needed = NEEDED_BY.get(name)
    return [*([ROLES[needed]] if needed and is_switched_on(places, needed) else []), general(name)]


def rows(installed_generals: list[str], also: frozenset[str] = frozenset()) -> list[RoleRow]:
    """Return the roles that should run: those that always do, those switched on, and the installed generals."""
    fixed = [row for row in ROLES.values() if not row.has_switch or row.name in also]
    return [*fixed, *(general(name) for name in sorted(installed_generals))]


def instances(places: Places, role: str) -> list[RoleRow]:
    """Return the further processes of a role, by the names that its product's configuration gives them."""
    row = ROLES[role]
    names = config.for_looking(places, INSTANCED[role])[0]["instances"].get(role, ())
    return [RoleRow(f"{role}-{name}", row.module, name, row.has_switch, row.serves) for name in sorted(names)]


def watcher(name: str) -> str:
    """Return who starts a role again that ended though it should run."""
    return "king" if name == "chamberlain" else "chamberlain"


def desired_state(places: Places, name: str) -> str:
    """Return `up`, or `down` when a person stopped it, or `quarantined` after a crash loop."""
    word = text_of(places.wanted(name), 64).strip()
    return word if word in ("down", "quarantined") else "up"


def was_stopped(places: Places, name: str) -> bool:
    """Return whether somebody asked the launcher itself to stop a role: its watcher then leaves it down."""
    stopped = read_json_or(places.roll_call(watcher(name)), {}).get("stopped")
    return isinstance(stopped, list) and name in stopped


def how_to_start(places: Places, name: str, command: str) -> str:
    """Return the command that starts a role: `up` does not start one that was stopped by hand or is quarantined."""
    return f"{command} up" if desired_state(places, name) == "up" else f"{command} start {name}"


def is_switched_on(places: Places, name: str) -> bool:
    """Return whether a role should run in this home, as far as its system.yaml says."""
    role, _, instance = name.partition("-")
    row = ROLES.get(role)
    if row is None or not row.has_switch:
        return True
    is_named = not instance or name in [row.name for row in instances(places, role)]
    return is_named and _is_on(places, role, config.for_looking(places, "system")[0]["roles"][role])


def is_switched_off(places: Places, name: str) -> bool:
    """Return whether a role should not run. While the files that say so are broken, it is not known to."""
    broken = (config.for_looking(places, file)[1] for file in ("system", *set(INSTANCED.values())))
    return not is_switched_on(places, name) and not any(broken)


def _is_on(places: Places, role: str, said: bool | None) -> bool:
    """Return whether an optional role should run. Where nothing is said, one does that an installed general needs."""
    return any(NEEDED_BY.get(name) == role for name in places.installed_generals()) if said is None else said


def roles_of(places: Places, system: Mapping[str, Any]) -> list[RoleRow]:
    """Return the roles that should run in this home unless stopped by hand, by its system.yaml and its manifests."""
    switched_on = frozenset(name for name, on in system["roles"].items() if _is_on(places, name, on))
    further = [row for role in INSTANCED if role in switched_on for row in instances(places, role)]
    return [*rows(places.installed_generals(), switched_on), *further]
