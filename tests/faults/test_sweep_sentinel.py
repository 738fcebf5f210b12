"""The sentinel, killed or cut off from its disk at every file call: every thing that happened outside becomes one
event, and only what did is marked as read."""

import json
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.home.places import Places
from kingdom.demo.standins import github, jira
from tests.faults import homes, oracle, trees
from tests.faults.sentinel_step import HUB, TICKETS, World
from tests.faults.sweep import FAULTS, QUICK_POINTS, QUICK_STATES, Step, none_bad, power_cuts, sweep

START = f"import sys; sys.path.append({str(trees.CHECKOUT)!r}); from pathlib import Path; "
PROGRAM = f"{START}from tests.faults import sentinel_step; sentinel_step.main(Path('{{home}}'))"
SECRETS = f"""GH_TOKEN={github.TOKEN}
JIRA_URL={TICKETS}
JIRA_USER_EMAIL={jira.EMAIL}
JIRA_API_TOKEN={jira.TOKEN}
"""


def prepare(home: Path) -> None:
    """Three notifications, one of them out of scope, and two tickets, one of them known."""
    scope = {"scope": {"repos": ["acme/*"]}}
    polling = {"github": {"base_url": HUB, **scope}, "jira": {"first_look_minutes": 1000}}
    places = homes.make(home, config={"sentinel": {"polling": polling}})
    places.env_file.write_text(SECRETS)
    places.env_file.chmod(0o600)
    with World(home) as world:
        for number, repo in ((1, "acme/shop"), (2, "acme/shop"), (3, "elsewhere/x")):
            world.hub.notify(number, repo=repo)
        world.tickets.ticket("QP-1")
        world.tickets.ticket("QP-2")
        world.tickets.move("QP-2", "Done")
    known = {"QP-2": {"status": "To Do", "updated": "20260101000000", "comment": 0}}
    homes.write(places.own("sentinel") / "jira-state.json", {"known_issues": known})
    expected = [f"evt-github-{thread['id']}-{thread['updated_at']}" for thread in list(world.hub.threads.values())[:2]]
    (home / "expected").write_text(json.dumps(expected))


def check(home: Path) -> list[str]:
    made = oracle.states_of(home, "events")
    wrong = oracle.tidy(home)
    expected = json.loads((home / "expected").read_text())
    for name in expected:
        wrong += oracle.exactly(f"events {name}", 1, len(made.get(name, [])))
    for key in ("QP-1", "QP-2"):
        wrong += oracle.exactly(f"events of {key}", 1, sum(name.startswith(f"evt-jira-{key}-") for name in made))
    wrong += oracle.exactly("events in all", len(expected) + 2, len(made))
    unread = [thread["subject"]["url"] for thread in _threads(home) if thread["unread"]]
    if unread != [f"{HUB}/repos/elsewhere/x/pulls/3"]:
        wrong.append(f"unread are {unread}")
    return wrong + _markers(home, made)


def _threads(home: Path) -> list[dict[str, Any]]:
    """What GitHub knows of the notifications."""
    with World(home) as world:
        return list(world.hub.threads.values())


def _markers(home: Path, made: dict[str, list[str]]) -> list[str]:
    """Of a ticket whose event a killed life has made, what is known of the ticket keeps it from coming again."""
    seen = {path.name for path in (Places(home).own("sentinel") / "seen").iterdir()}
    unmarked = {name for name in made.keys() - seen if name.startswith("evt-github-")}
    return [f"marked as seen, and never made: {name}" for name in seen - made.keys()] + [
        f"made, and not marked as seen: {name}" for name in unmarked
    ]


def at_fault(home: Path) -> list[str]:
    """What is marked as read, or as seen, is safe with us: at every moment."""
    made = oracle.states_of(home, "events")
    wrong = oracle.half_visible(home)
    for one in _threads(home):
        if not one["unread"] and f"evt-github-{one['id']}-{one['updated_at']}" not in made:
            wrong.append(f"{one['id']} is marked as read, and its event is not there")
    seen = {path.name for path in (Places(home).own("sentinel") / "seen").glob("*")}
    return wrong + [f"{name} is marked as seen, and is not there" for name in sorted(seen - made.keys())]


SENTINEL = Step("sentinel", ("-c", PROGRAM), prepare, check, at_fault, steady=False, timeout=60.0)


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_file_call_of_the_sentinel_loses_or_doubles_anything(fault: str, figure: oracle.Figure) -> None:
    none_bad(sweep(SENTINEL, fault, budget=QUICK_POINTS), figure)


def test_no_power_cut_under_the_sentinel_loses_or_doubles_anything(figure: oracle.Figure) -> None:
    none_bad(power_cuts(SENTINEL, budget=QUICK_STATES), figure)
