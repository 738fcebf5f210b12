"""The tests of the team and of its general are shown programs with a defect, and must catch it."""

from __future__ import annotations

import pytest

from tests.faults import mutants
from tests.faults.changes import body, drop, replace
from tests.faults.mutants import Mutant

AGENTS = "tests/council/team/test_agents.py::test_"
PLAN = "tests/council/team/test_plan.py::test_"
TALK = "tests/council/team/test_talk.py::test_"
GOAL = "tests/council/team/test_goal.py::test_"
COMMANDS = "tests/council/cli/test_council.py::test_"

MUTANTS = [
    Mutant(
        "an agent answers what it has answered",
        "kingdom.council.team.context:Context.work",
        replace('self.memory.execute("select 1 from seen where id = ?", A).fetchone()', "None"),
        AGENTS + "told_twice_it_has_sent_the_same_files",
    ),
    Mutant(
        "an agent leaves a message that it has done with",
        "kingdom.council.team.context:Context.work",
        drop("os.unlink"),
        AGENTS + "told_twice_it_has_sent_the_same_files",
    ),
    Mutant(
        "a plan in a circle is begun",
        "kingdom.council.team.plan:Plan.fault",
        body('return ""'),
        PLAN + "a_plan_that_cannot_be_followed_is_told",
    ),
    Mutant(
        "anybody may report a task",
        "kingdom.council.team.plan:Plan.is_out",
        body("return True"),
        PLAN + "a_task_belongs_to_the_ignitian_that_has_it",
        quick=True,
    ),
    Mutant(
        "a task that fails is given out for ever",
        "kingdom.council.team.plan:Plan.try_again",
        replace("row[0] < MOST_TRIES", "True"),
        PLAN + "a_task_that_failed_is_given_out_once_more",
    ),
    Mutant(
        "a task that is never reported is not given out again",
        "kingdom.council.team.coordinator:unanswered",
        drop("_try_again"),
        AGENTS + "a_task_that_was_deleted_without_a_report_is_given_out_once_more",
    ),
    Mutant(
        "what an ignitian is good at is not looked at",
        "kingdom.council.team.plan:Plan.assign",
        replace("(one, skill) not in skilled", "False"),
        PLAN + "whoever_has_done_the_like_is_preferred_among_the_free",
    ),
    Mutant(
        "evaluator believes what it is told",
        "kingdom.council.team.goals:faults",
        body("return []"),
        GOAL + "a_goal_goes_through_the_whole_team",
    ),
    Mutant(
        "words of a repository act in what is delivered",
        "kingdom.council.team.goals.repository:quoted",
        body("return text"),
        AGENTS + "words_of_a_repository_cannot_act",
    ),
    Mutant(
        "a plan does not wait for its yes",
        "kingdom.council.monitor.goals:Goals.holds",
        body("return False"),
        TALK + "after_a_no_nothing_is_given_out",
    ),
    Mutant(
        "what waits in a thread that is over is told",
        "kingdom.council.monitor.goals:Goals.is_over",
        body('return ""'),
        TALK + "after_a_no_nothing_is_given_out",
    ),
    Mutant(
        "anybody may end a goal",
        "kingdom.council.monitor.goals:Goals.note_end",
        replace('message.sender != "leader"', "False"),
        TALK + "leader_alone_ends_a_goal",
    ),
    Mutant(
        "any file that leader names is delivered",
        "kingdom.court.general.council:_keep_deliverables",
        replace("not path.is_relative_to(allowed)", "False"),
        TALK + "only_files_of_agents_are_delivered",
    ),
    Mutant(
        "a cancelled goal goes on at the council",
        "kingdom.court.general.council:_finish",
        drop("_write"),
        TALK + "a_cancelled_goal_ends_for_everybody",
    ),
    Mutant(
        "what agents have written acts in a page",
        "kingdom.council.cli.council_page:_text",
        replace("escape(A)", "A"),
        COMMANDS + "a_thread_is_one_page_in_which_nothing_acts",
    ),
]
KNOWN = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
def test_a_seeded_defect_of_the_team_is_caught(name: str) -> None:
    mutant = KNOWN[name]
    assert mutants.is_caught(mutant, lambda tree, _: mutants.failing(tree, mutant.caught_by)), mutant.caught_by
