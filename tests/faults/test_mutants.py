"""The table of seeded defects fits the program, the runner catches and lets through, and the page names its checks."""

from __future__ import annotations

import re

from tests.faults import mutants, trees

WITHOUT_A_DEFECT = {
    f"tests/{place}.py"
    for place in """
        base/disk/test_atomic distributed/test_kills faults/hall/test_random_kills_hall faults/mailbox/test_kills
        faults/test_random_kills faults/test_slack_calls faults/test_sweep_goal faults/test_sweep_work
        faults/watch/test_launchers_by_hand faults/watch/test_parity faults/watch/test_real_systemd
        faults/watch/test_restart_wishes faults/watch/test_secrets faults/watch/test_week hall/gateway/test_loads
        hall/gateway/test_two_gateways journey/test_hall web/test_kingdom_rooms
    """.split()
}
"""Where chance decides how long it takes, or the defect of a row beside it would show as well."""
PAGE = (trees.CHECKOUT / "docs/reliability.md").read_text()


def test_every_row_applies_at_one_place_and_names_a_test() -> None:
    assert [why for mutant in mutants.mutants() if (why := mutant.why_not())] == []


def test_every_check_of_the_page_has_a_defect() -> None:
    seeded = {mutant.test.partition("::")[0] for mutant in mutants.mutants()}
    assert {place for place in checks_on_the_page() if place.endswith(".py")} - seeded == WITHOUT_A_DEFECT


def test_a_defect_is_caught_a_harmless_change_is_not_and_a_skipped_check_judges_nothing() -> None:
    row = next(mutant for mutant in mutants.mutants() if mutant.name == "what people say waits on a yellow machine")
    skipped = "tests/faults/test_random_kills.py::test_homes_at_work_raise_no_alarm"
    planted = (row, row._replace(new=f"({row.old})"), row._replace(test=skipped))
    assert [mutants.outcome(mutant)[0] for mutant in planted] == [mutants.CAUGHT, mutants.SURVIVED, mutants.SKIPPED]


def test_every_check_on_the_page_says_its_figure() -> None:
    places = [trees.CHECKOUT / place for place in checks_on_the_page() - {"tests/base/disk/test_atomic.py"}]
    files = {file for place in places for file in (place.rglob("test_*.py") if place.is_dir() else [place])}
    assert len(files) > 20
    assert [file for file in files if not re.search(r'figure\(|none_bad\(|"figure"', file.read_text())] == []


def checks_on_the_page() -> set[str]:
    rows = [row.split("|")[-2] for row in PAGE.splitlines() if row.startswith("| ") and ".py`" in row]
    named = [name for row in rows for name in re.findall(r"`((?:\w+/)*(?:test_\w+\.py)?)`", row)]
    return {name if name.startswith("tests/") else f"tests/faults/{name}" for name in named}
