"""Row 6: a crash loop is slowed down, quarantined and told once, and the others do not notice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.faults import homes, trees
from tests.faults.oracle import Figure, exactly
from tests.faults.watch.kingdoms import LAUNCHERS, PATIENT, ROLES, Kingdom, kingdom, one_of
from tests.waiting import LATER, SOON, stays, wait_until

LOOPING = homes.GENERAL
FASTER = 10
"""A second here stands for so many: five lives of less than a minute within ten are a crash loop."""
SCALED = {
    "KINGDOM_DELAY_FIRST": str(100 // FASTER),
    "KINGDOM_DELAY_LONGEST": str(30000 // FASTER),
    "KINGDOM_SHORT_RUN": str(6000 // FASTER),
    "KINGDOM_SHORT_WINDOW": str(60000 // FASTER),
}
SHORT = (0.1 / FASTER, 10 / FASTER, 20 / FASTER)
LONG = 90 / FASTER
MOST_LIVES = 7


def check_import_failure(tree: Path, launcher: str) -> list[str]:
    """A role whose code cannot even be loaded: all that stands between it and a spinning machine is bin/role."""
    with kingdom(launcher, tree=tree, config=PATIENT, env=SCALED) as court:
        court.up()
        others = {role: pid for role, pid in court.pids().items() if role != "envoy"}
        (tree / "kingdom" / "court" / "envoy" / "__init__.py").write_text("raise ImportError('half an upgrade')\n")
        trees.compile_program(tree)
        court.cause_fault("envoy", "crash")
        wait_until(lambda: is_quarantined(court, "envoy"), LATER, f"quarantined: {court.logs()}")
        wrong = steady(court, others)
        wrong += [] if not court.role_processes("envoy") else ["the quarantined role runs"]
        return wrong + told_once(court, "envoy")


def check_short_lives(tree: Path, launcher: str, length: float) -> list[str]:
    with kingdom(launcher, tree=tree, config=PATIENT, env=SCALED) as court:
        court.up()
        others = {role: pid for role, pid in court.pids().items() if role != LOOPING}
        lives = 0
        while not is_quarantined(court, LOOPING):
            lives += 1
            if lives > MOST_LIVES:
                return [f"not quarantined after {lives} lives of {length} s"]
            wait_until(lambda: court.role_processes(LOOPING) or is_quarantined(court, LOOPING), SOON, "another life")
            if not is_quarantined(court, LOOPING):
                live_for(court, length)
        wrong = steady(court, others)
        return wrong + told_once(court, LOOPING)


def check_long_lives(tree: Path, launcher: str) -> list[str]:
    with kingdom(launcher, tree=tree, config=PATIENT, env=SCALED) as court:
        court.up()
        for _ in range(6):
            live_for(court, LONG)
        court.wait_for_beats(LOOPING)
        return ["lives that lasted were quarantined"] if is_quarantined(court, LOOPING) else []


def live_for(court: Kingdom, seconds: float) -> None:
    """One more life, which crashes so long after its first beat."""
    court.wait_for_beats(LOOPING)
    pid = court.pid(LOOPING)
    stays(lambda: court.pid(LOOPING) == pid, seconds, "its life") if seconds else None
    court.cause_fault(LOOPING, "crash")
    wait_until(lambda: pid not in court.role_processes(LOOPING), SOON, "it has crashed")


def is_quarantined(court: Kingdom, role: str) -> bool:
    try:
        return court.places.wanted(role).read_text() == "quarantined\n"
    except FileNotFoundError:
        return False


def steady(court: Kingdom, others: dict[str, int]) -> list[str]:
    return [f"{role} did not live through it" for role, pid in others.items() if not court.lives_on({role: pid})]


def told_once(court: Kingdom, role: str) -> list[str]:
    def alerts() -> list[str]:
        told = [message["content"] for message in court.messages() if "quarantine" in message["content"]]
        return [text for text in told if role in text]

    wait_until(alerts, SOON, f"an alert: {court.messages()} {court.logs()}")
    stays(lambda: len(alerts()) == 1, 2.0, "one alert")
    return exactly("alerts", 1, len(alerts()))


@pytest.mark.parametrize("launcher", one_of("tmux"))
def test_a_role_that_cannot_be_loaded(launcher: str, figure: Figure) -> None:
    tree = trees.new_folder()
    shutil.copytree(trees.program(), tree, dirs_exist_ok=True)
    assert check_import_failure(tree, launcher) == []
    figure(f"row 6 import failure, {launcher}: quarantined, 1 alert, {len(ROLES) - 1} other roles unaffected")


@trees.in_campaigns
@pytest.mark.parametrize("launcher", one_of("supervisord"))
def test_lives_of_every_length(launcher: str, figure: Figure) -> None:
    lengths = SHORT if trees.CAMPAIGN else SHORT[1:2]
    for length in lengths:
        assert check_short_lives(trees.program(), launcher, length) == []
    scaled = ", ".join(f"{FASTER * length:.3g} s" for length in lengths)
    figure(f"row 6 crash loop, {launcher}: lives of {scaled} (scaled) quarantined, 1 alert, others unaffected")


@trees.in_campaigns
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_lives_that_lasted_are_never_quarantined(launcher: str, figure: Figure) -> None:
    assert check_long_lives(trees.program(), launcher) == []
    figure(f"row 6 long lives, {launcher}: 6 of {FASTER * LONG:g} s (scaled), 0 quarantined")
