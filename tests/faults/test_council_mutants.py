"""The sweep of the council and its own tests are shown councils with a defect, and must catch it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import mutants, test_full_disk, test_sweep_council
from tests.faults.changes import body, drop, replace, swap
from tests.faults.mutants import Mutant
from tests.faults.sweep import KILL, sweep

FAILING = "tests/council/monitor/test_failing.py::test_"
TELLING = "tests/council/monitor/test_telling.py::test_"
OUTBOX = "tests/council/monitor/test_outbox.py::test_"
ENGINES = "tests/council/monitor/test_engines.py::test_"
FULL, HOARD = "full disk, council", "full disk, an agent that fills it with small files"
COMMANDS = "tests/council/cli/test_council.py::test_"

MUTANTS = [
    Mutant(
        "a turn is noted after its program was started",
        "kingdom.council.monitor.turns:Turns.tell",
        swap("unsynced.rewrite", "soldier.start"),
        "council kill",
        near="^[a-z0-9]+ state/council/camp/council-(leader|strategist)|^fsync state/council",
    ),
    Mutant(
        "a message is removed before its dead letter is there",
        "kingdom.council.monitor.delivery:Delivery._give_up",
        replace(
            "self.dead_letters.keep(A, B, C, D, E)",
            "(self._services.disk.remove(A), self.dead_letters.keep(A, B, C, D, E))[1]",
        ),
        "council kill",
        near="dead_letter|^fsync workspace/queue/(architect|strategist)/processed",
    ),
    Mutant(
        "a dead letter that is there already is not recognised",
        "kingdom.council.monitor.dead_letters:DeadLetters.keep",
        replace("_holds(A, B, C)", "False"),
        "council kill",
        near="^(unlink|renameat2) workspace/queue/(architect|strategist|evaluator|leader/escalation)",
    ),
    Mutant(
        "an escalation that is there already is not recognised",
        "kingdom.council.monitor.dead_letters:DeadLetters._is_sent",
        body("return False"),
        "council kill",
        near="^unlink",
    ),
    Mutant(
        "what an agent's soldier reports is not read",
        "kingdom.council.monitor.turns:Turns._end_of",
        replace("A.report is not None", "False"),
        FAILING + "an_agent_that_ended_while_the_council_was_away_and_left_its_message_is_told_again",
    ),
    Mutant(
        "an agent at work is forgotten at a restart",
        "kingdom.council.monitor.turns:Turns.__init__",
        replace("self._noted()", "()"),
        FAILING + "an_agent_at_work_is_found_again_and_not_told_twice",
    ),
    Mutant(
        "a try is counted again after a kill",
        "kingdom.council.monitor.delivery:Delivery._end",
        replace("A.retries > B", "False"),
        FAILING + "a_try_is_counted_once_though_the_council_is_killed_before_it_forgets_the_turn",
    ),
    Mutant(
        "an edit brings a deleted message back",
        "kingdom.council.monitor.delivery:Delivery._edit",
        replace("mime.rewrite(A, B, keep=C, wait=D)", "Path(os.fsdecode(A)).write_text(B(''))"),
        FAILING + "an_edit_of_the_council_does_not_bring_a_deleted_message_back",
    ),
    Mutant(
        "an escalation escalates",
        "kingdom.council.monitor.dead_letters:DeadLetters.escalate",
        replace("A.type in NEVER_ESCALATE", "False"),
        FAILING + "a_dead_letter_that_somebody_sends_leader_escalates_no_further",
    ),
    Mutant(
        "people are told of each escalation",
        "kingdom.council.monitor.dead_letters:DeadLetters._alert",
        replace("self._told.get(A)", "None"),
        FAILING + "when_leader_is_down_people_get_exactly_one_alert",
    ),
    Mutant(
        "the longest wait is not kept",
        "kingdom.council.monitor.delivery:Delivery.fail",
        replace("min(self._settings.max_delay, A)", "A"),
        FAILING + "no_wait_is_longer_than_the_longest",
    ),
    Mutant(
        "an agent that hangs is not ended",
        "kingdom.council.monitor.turns:Turns._killed",
        drop("kill"),
        FAILING + "an_agent_that_hangs_is_ended_with_all_that_it_started",
    ),
    Mutant(
        "a file is judged while somebody writes it",
        "kingdom.council.monitor.writers:Writers.are_done",
        replace("is_open_for_writing(A)", "False"),
        FAILING + "a_file_that_somebody_is_writing_is_judged_when_it_is_closed",
    ),
    Mutant(
        "an agent is told while it is at work",
        "kingdom.council.monitor.job:CouncilJob.turn",
        replace("A.agent not in self._turns.running", "True"),
        TELLING + "an_agent_has_one_turn_at_a_time_and_the_others_wait_for_a_slot",
        quick=True,
    ),
    Mutant(
        "a message in another's folder is told",
        "kingdom.council.monitor.messages:faults_of",
        drop("found.append"),
        FAILING + "a_bad_message_goes_to_the_dead_letters_byte_for_byte_with_its_reason",
    ),
    Mutant(
        "an agent is whoever it says",
        "kingdom.council.monitor.outboxes:Outboxes._fault_of",
        replace("mime.folder_of(A) != B", "False"),
        OUTBOX + "what_is_not_its_own_to_send_is_parked_and_people_are_told[another sender]",
        quick=True,
    ),
    Mutant(
        "an agent speaks in any thread",
        "kingdom.council.monitor.outboxes:Outboxes._fault_of",
        replace("A and not B.names_no_thread and C != D", "False"),
        OUTBOX + "what_an_agent_sends_belongs_to_the_thread_that_it_was_told_of",
    ),
    Mutant(
        "a goal that names no thread begins none",
        "kingdom.council.monitor.messages:read_message",
        replace("A in BEGINNINGS and not B", "False"),
        TELLING + "a_goal_that_names_no_thread_begins_one_that_its_answers_inherit",
    ),
    Mutant(
        "a dead letter keeps its name while its message is put back",
        "kingdom.council.cli.council_dead_letters:_put_back",
        replace("A.with_name(B)", "A"),
        COMMANDS + "what_is_given_up_again_while_it_is_put_back_is_kept",
    ),
    Mutant(
        "a link in an outbox is followed",
        "kingdom.council.monitor.outboxes:Outboxes._judged",
        replace("read_with_status(A)[0]", "A.read_bytes()"),
        OUTBOX + "what_is_not_its_own_to_send_is_parked_and_people_are_told[a link to another's message]",
    ),
    Mutant(
        "a copy that a killed council has made is made again",
        "kingdom.council.monitor.outboxes:Outboxes._keep",
        replace("_holds(A, B)", "False"),
        OUTBOX + "a_kill_at_any_step_of_sending_sends_once[copied]",
    ),
    Mutant(
        "what a killed council has copied is left where it lies",
        "kingdom.council.monitor.job:CouncilJob.__init__",
        drop("collect"),
        OUTBOX + "a_kill_at_any_step_of_sending_sends_once[taken out]",
    ),
    Mutant(
        "a flood is sent on whole",
        "kingdom.council.monitor.outboxes:Outboxes._is_flooded",
        body("return False"),
        OUTBOX + "a_flood_is_set_aside_and_others_are_served",
    ),
    Mutant(
        "people are not told of a forgery",
        "kingdom.council.monitor.dead_letters:DeadLetters.park",
        drop("self._tell"),
        OUTBOX + "of_many_forgeries_people_are_told_once",
    ),
    Mutant(
        "an agent may do with its messages what it likes",
        "kingdom.court.soldier.sandbox:_ruleset",
        replace("_READ_FILE | _REMOVE_FILE", "handled"),
        OUTBOX + "an_agent_reaches_nothing_but_its_outbox_and_its_own_messages",
    ),
    Mutant(
        "an agent may delete others' messages",
        "kingdom.council.monitor.orders:order",
        replace("[str(A.told(B))]", "[str(A.council)]"),
        OUTBOX + "an_agent_reaches_nothing_but_its_outbox_and_its_own_messages",
    ),
    Mutant(
        "an agent reads what the council knows",
        "kingdom.base.home.places:Places.withheld_from",
        replace("(yield self.state)", "None"),
        OUTBOX + "an_agent_reaches_nothing_but_its_outbox_and_its_own_messages",
    ),
    Mutant(
        "what an agent that is told again sends again is sent on",
        "kingdom.council.monitor.outboxes:Outboxes._was_sent",
        body("return False"),
        OUTBOX + "an_agent_that_is_told_again_sends_once_what_it_sent_once[taken]",
    ),
    Mutant(
        "the note of a turn that still runs is written over",
        "kingdom.council.monitor.turns:Turns.tell",
        replace("A.is_running()", "False"),
        FAILING + "the_note_of_a_turn_that_still_runs_is_not_written_over",
    ),
    Mutant(
        "an answer that nobody gives is waited for",
        "kingdom.council.monitor.unanswered:Unanswered.look",
        body("return 0"),
        "tests/council/team/test_ends.py::"
        "test_a_goal_does_not_wait_for_an_answer_that_nobody_gives[leader with its goal]",
    ),
    Mutant(
        "a limit of its account counts as an agent's failure",
        "kingdom.council.monitor.delivery:Delivery._end",
        replace("A.is_excused", "False"),
        ENGINES + "a_limit_of_its_account_is_no_failure_of_a_message",
    ),
    Mutant(
        "on a full disk goes what an agent keeps, and what it has sent",
        "kingdom.court.soldier.serve:_make_room",
        replace("A not in B.lasting", "True"),
        FULL,
    ),
    Mutant(
        "an agent's small files stay on the disk that they have filled",
        "kingdom.court.soldier.serve:_make_room",
        replace("A and why_full(B)", "False"),
        HOARD,
    ),
    Mutant(
        "what an agent has kept goes with what it filled the disk with",
        "kingdom.court.soldier.serve:_make_room",
        replace(
            "['find', *order.lasting, '-xdev', '-type', 'f', '-cnewer', order.prompt]",
            "['find', *order.lasting, '-xdev', '-type', 'f']",
        ),
        HOARD,
    ),
    Mutant(
        "agents are told of messages on a full disk",
        "kingdom.council.monitor.turns:Turns.must_wait",
        replace("self._full", "False"),
        FULL,
    ),
    Mutant(
        "a turn that a full disk has ended is an agent's failure",
        "kingdom.council.monitor.turns:Turns._reported",
        replace("was_stopped or A", "was_stopped"),
        FAILING + "while_the_disk_is_full_nobody_is_told_and_no_try_counts",
    ),
    Mutant(
        "a message that is put back is not the one that was given up",
        "kingdom.council.cli.council_dead_letters:_put_back",
        replace("original_of(A)", "original_of(A).strip()"),
        COMMANDS + "retry_puts_a_message_back_byte_for_byte",
    ),
]
KNOWN = {mutant.name: mutant for mutant in MUTANTS}


def check(tree: Path, name: str, near: str) -> list[str]:
    """Return what a check finds wrong with the program of a tree."""
    if name in test_full_disk.CHECKS:
        return test_full_disk.CHECKS[name](tree)
    if name == "council kill":
        return sweep(test_sweep_council.COUNCIL, KILL, tree=tree, near=near, stop_at=1).bad
    return mutants.failing(tree, name)


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
def test_a_seeded_defect_of_the_council_is_caught(name: str) -> None:
    mutant = KNOWN[name]
    assert mutants.is_caught(mutant, lambda tree, near: check(tree, mutant.caught_by, near)), mutant.caught_by
