"""Defects of what the demo counts and of how another home is taken over: each must be caught by the command's tests."""

from __future__ import annotations

import pytest

from tests.faults import mutants
from tests.faults.changes import before, body, drop, replace
from tests.faults.mutants import Mutant

STORY, ADOPT = "kingdom.demo.demo_story", "kingdom.cli.adopt"
OF_DEMO, OF_ADOPT = "tests/demo/test_demo.py", "tests/cli/test_adopt.py"

MUTANTS = [
    Mutant(
        "the demo counts nothing as lost",
        f"{STORY}:_counted",
        replace("len(asked - set(found))", "0"),
        f"{OF_DEMO}::test_a_notification_without_an_event_is_lost",
    ),
    Mutant(
        "the demo counts nothing as doubled",
        f"{STORY}:_counted",
        replace("len(found) - len(A & B)", "0"),
        f"{OF_DEMO}::test_a_message_is_posted_once_and_a_thread_has_one_end",
    ),
    Mutant(
        "an event of another moment is another notification to the demo",
        f"{STORY}:_sources",
        replace("A.partition('-20')[0]", "A"),
        f"{OF_DEMO}::test_a_notification_with_two_events_is_doubled",
    ),
    Mutant(
        "the demo overlooks what is left in dead/ and failed/",
        f"{STORY}:waiting",
        replace("(kind, state) not in ended", "state == 'pending'"),
        f"{OF_DEMO}::test_what_has_not_come_to_its_end_is_left_over",
    ),
    Mutant(
        "a home is taken over before it was asked for twice",
        f"{ADOPT}:adopt",
        before("_print", "_carry_out(places, plan)"),
        f"{OF_ADOPT}::test_at_first_it_only_says_what_would_be_done",
    ),
    Mutant(
        "what was served meanwhile comes again",
        f"{ADOPT}:_is_free",
        replace("not any(A.exists() for state in states)", "not target.exists()"),
        f"{OF_ADOPT}::test_what_was_served_meanwhile_does_not_come_again",
        quick=True,
    ),
    Mutant(
        "what the owner has written is replaced",
        f"{ADOPT}:_is_default",
        body("return target.parent == places.config"),
        f"{OF_ADOPT}::test_what_the_owner_has_written_here_stays",
    ),
    Mutant(
        "a home at work is taken over",
        f"{ADOPT}:_of_home",
        drop("_refuse_if_at_work"),
        f"{OF_ADOPT}::test_nobody_may_be_at_work_in_either_home",
    ),
    Mutant(
        "an event under another name is taken",
        f"{ADOPT}:_check_event",
        replace("A != path.name", "False"),
        f"{OF_ADOPT}::test_what_cannot_be_taken_is_named_and_the_rest_is_taken",
    ),
]
KNOWN = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
def test_a_seeded_defect_of_a_command_is_caught(name: str) -> None:
    mutant = KNOWN[name]
    assert mutants.is_caught(mutant, lambda tree, _: mutants.failing(tree, mutant.caught_by)), mutant.caught_by
