"""Defects of the sentinel: each must be caught by its sweep, or by the tests of what services do to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import mutants, test_sweep_sentinel
from tests.faults.changes import before, body, drop, replace, swap
from tests.faults.mutants import Mutant
from tests.faults.sweep import KILL, sweep

HUB, TICKETS = "tests/court/sentinel/test_github.py", "tests/court/sentinel/test_jira.py"

MUTANTS = [
    Mutant(
        "an event is marked as seen before it is made",
        "kingdom.court.sentinel.seen:SeenEvents.create",
        swap("_queue.create", "_disk.create_all"),
        caught_by="sentinel kill",
        near="events/pending|seen",
    ),
    Mutant(
        "a thread is marked as read before its event is made",
        "kingdom.court.sentinel.watchers.github:GitHubWatcher.parse",
        before("self._kit.state.remove(A)", "[self._mark(name) for name in found.to_mark]"),
        caught_by="sentinel kill",
        near="github-state|events/pending",
    ),
    Mutant(
        "own words come back as work",
        "kingdom.court.sentinel.watchers.github:GitHubWatcher._is_person",
        body("return True"),
        caught_by=f"{HUB}::test_own_words_and_those_of_bots_make_no_events",
    ),
    Mutant(
        "a bot's comment hides that a review was asked",
        "kingdom.court.sentinel.watchers.github:GitHubWatcher._latest_writings",
        replace("any(A >= since and self._asks_us(B, C) for entry in done)", "False"),
        caught_by=f"{HUB}::test_what_a_person_did_before_a_bot_wrote_is_heard_once",
    ),
    Mutant(
        "a mark hides what has happened since the look",
        "kingdom.court.sentinel.watchers.github:_is_open",
        body("return bool(thread['unread'])"),
        caught_by=f"{HUB}::test_what_happens_between_a_look_and_its_mark_is_not_hidden_by_it",
    ),
    Mutant(
        "a limit is not waited out",
        "kingdom.court.sentinel.watch:WatcherTurns._fails",
        replace("self._rest(A)", "self._rest(self._interval)"),
        caught_by=f"{HUB}::test_a_secondary_limit_is_waited_out_exactly_also_by_the_next_life",
    ),
    Mutant(
        "the next life forgets a limit",
        "kingdom.court.sentinel.watch:WatcherTurns._rest_of_pause",
        body("return 0.0"),
        caught_by=f"{HUB}::test_a_secondary_limit_is_waited_out_exactly_also_by_the_next_life",
    ),
    Mutant(
        "a soldier is not told what is asked of it",
        "kingdom.court.sentinel.watchers.github:GitHubWatcher._fetch_details",
        body("return {}"),
        caught_by=f"{HUB}::test_who_mentions_us_is_heard",
    ),
    Mutant(
        "a look that fails half-way asks all of it again",
        "kingdom.court.sentinel.watchers.github:GitHubWatcher._details_of",
        body("return self._fetch_details(thread)"),
        caught_by=f"{HUB}::test_a_look_that_fails_half_way_does_not_ask_all_of_it_again",
    ),
    Mutant(
        "a token with scopes is used at the site",
        "kingdom.court.connections.jira:site",
        body("return URL.value(secrets)"),
        caught_by=f"{TICKETS}::test_a_token_with_scopes_is_used_at_the_one_address_that_takes_it",
    ),
    Mutant(
        "a failure is told at every look",
        "kingdom.court.sentinel.watch:WatcherTurns._say_trouble",
        replace("self._trouble != A", "True"),
        caught_by=f"{HUB}::test_a_service_that_fails_is_told_once_and_nothing_is_lost_or_doubled",
    ),
    Mutant(
        "the breaker lets everything pass",
        "kingdom.court.sentinel.breaker:Breaker.passing",
        replace("A and B >= self._most_of_subject", "False"),
        caught_by=f"{HUB}::test_the_breaker_ends_a_loop_and_loses_nothing",
    ),
    Mutant(
        "the token goes wherever an answer points",
        "kingdom.court.connections.web:Web._url",
        replace("A[:2] != B[:2]", "False"),
        caught_by=f"{HUB}::test_the_token_goes_nowhere_else",
    ),
    Mutant(
        "a request may take for ever",
        "kingdom.court.connections.web:Web.ask",
        replace("(self._deadlines.connect, self._deadlines.read)", "(5.0, 600.0)"),
        caught_by=f"{HUB}::test_a_service_that_hangs_is_not_waited_for",
    ),
    Mutant(
        "the first look has no bound",
        "kingdom.court.sentinel.watchers.github:GitHubWatcher._is_new",
        body("return found.told.get(id_of(thread), {}) is not None"),
        caught_by=f"{HUB}::test_the_first_look_is_bounded",
    ),
    Mutant(
        "what is about to be made is not noted first",
        "kingdom.court.sentinel.watch:WatcherTurns._parse",
        drop("_state.save"),
        caught_by=f"{TICKETS}::test_a_killed_life_that_had_made_the_event_does_not_make_another",
        quick=True,
    ),
    Mutant(
        "windows do not reach back to the last look",
        "kingdom.court.sentinel.watchers.jira:JiraWatcher._minutes",
        replace("max(1, ceil((A - B) / 60)) + OVERLAP_MINUTES", "OVERLAP_MINUTES"),
        caught_by=f"{TICKETS}::test_a_restart_loses_nothing_however_long_it_was_away",
    ),
    Mutant(
        "own moves come back as work",
        "kingdom.court.sentinel.watchers.jira:_is_own",
        body("return False"),
        caught_by=f"{TICKETS}::test_what_we_and_programs_do_never_comes_back",
    ),
    Mutant(
        "only the first page is read",
        "kingdom.court.sentinel.watchers.jira:JiraWatcher._search",
        replace("A or not B", "True"),
        caught_by=f"{TICKETS}::test_every_page_is_read",
    ),
]
KNOWN = {mutant.name: mutant for mutant in MUTANTS}


def check(tree: Path, name: str, near: str) -> list[str]:
    """Return what a check finds wrong with the program of a tree."""
    if name == "sentinel kill":
        return sweep(test_sweep_sentinel.SENTINEL, KILL, tree=tree, near=near, stop_at=1, budget=8).bad
    return mutants.failing(tree, name)


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
def test_a_seeded_defect_of_the_sentinel_is_caught(name: str) -> None:
    mutant = KNOWN[name]
    assert mutants.is_caught(mutant, lambda tree, near: check(tree, mutant.caught_by, near)), mutant.caught_by
