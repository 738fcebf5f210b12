"""The sweeps and power cuts of topics and worker are shown programs with a defect, and must catch it."""

from __future__ import annotations

from dataclasses import replace as replace_fields

import pytest

from tests.faults import mutants
from tests.faults.changes import before, body, constant, drop, replace
from tests.faults.hall import test_clock_hall, test_forged_hall
from tests.faults.hall.test_sweep_hall import WORKER, overtaking, publishing, reading
from tests.faults.mutants import Check, Mutant, failing
from tests.faults.oracle import Figure
from tests.faults.powerloss import OUTCOMES
from tests.faults.sweep import KILL, Step, power_cuts, sweep


def killed(step: Step) -> Check:
    return lambda tree, near: sweep(step, KILL, tree=tree, near=near, stop_at=1).bad


def cut(step: Step) -> Check:
    """`near` is the outcome of a cut that shows it; without one all are tried."""
    return lambda tree, near: power_cuts(step, tree=tree, stop_at=1, outcomes=[near] if near else OUTCOMES).bad


FORGED, SOON_OVER = 20, replace_fields(test_clock_hall.QUICK, seconds=40.0)
CHECKS = {
    "publish kill": killed(publishing()),
    "publish power": cut(publishing("power")),
    "read kill": killed(reading()),
    "overtake power": cut(overtaking()),
    "worker kill": killed(WORKER),
    "envoy": lambda tree, near: failing(tree, f"tests/hall/channel/test_hall.py::{near}"),
    "damaged": lambda tree, near: failing(tree, f"tests/hall/topics/test_batches.py::{near}"),
    "lost": lambda tree, near: failing(tree, f"tests/hall/database/test_sqlite_file.py::{near}"),
    "sessions": lambda tree, near: failing(tree, f"tests/hall/gateway/test_restored_sessions.py::{near}"),
    "proxies": lambda tree, near: failing(tree, f"tests/hall/gateway/test_proxies.py::{near}"),
    "database": lambda tree, near: failing(tree, f"tests/contracts/test_hall_databases.py::{near}"),
    "commands": lambda tree, near: failing(tree, f"tests/hall/worker/test_commands.py::{near}"),
    "rebuild": lambda tree, near: failing(
        tree,
        "tests/hall/cli/test_hall.py"
        "::test_lost_messages_come_back_from_the_topic_under_their_ids_and_removed_ones_stay_blank",
    ),
    "backup": lambda tree, near: failing(tree, "tests/hall/test_backup_hall.py"),
    "clock": lambda tree, near: test_clock_hall.wrong(tree, SOON_OVER)[0],
    "forged": lambda tree, near: test_forged_hall.wrong(tree, FORGED)[0],
}

MUTANTS = [
    Mutant(
        "a batch is not synced before it is acknowledged",
        "kingdom.base.disk.atomic:NewFile.write",
        drop("fdatasync"),
        "publish power",
        near="names",
    ),
    Mutant(
        "the name of a batch is not synced before it is acknowledged",
        "kingdom.base.disk.atomic:NewFile.close",
        drop("A.sync_name"),
        "publish power",
        near="synced",
    ),
    Mutant(
        "what is read has an effect before it is durable",
        "kingdom.hall.topics.files:FilesGroupReader._read",
        drop("A.sync"),
        "overtake power",
        near="synced",
    ),
    Mutant(
        "a batch is written in place",
        "kingdom.base.disk.atomic:NewFile.take",
        replace("rename_new(A, B)", "(Path(B).write_bytes(Path(A).read_bytes()), os.unlink(A))"),
        "publish kill",
        near="^write topics",
    ),
    Mutant(
        "unfinished batches of a killed writer are left",
        "kingdom.hall.topics.files:FilesTopics",
        drop("sweep_scratch"),
        "publish kill",
        near="scratch-publisher",
    ),
    Mutant(
        "messages are passed before they are told",
        "kingdom.hall.worker.job:WorkerJob._publish",
        before("self._producer.append", "self._reader.commit(self._in_hand)"),
        "worker kill",
        near="persisted",
    ),
    Mutant(
        "what was stored before is taken for a message that its client sent again",
        "kingdom.hall.database.persist:_stored_before",
        replace("not is_redelivery and A", "True"),
        "worker kill",
        near="persisted",
    ),
    Mutant(
        "a message that its client sent again gets an id of its own",
        "kingdom.hall.database.persist:_client_key",
        replace("event.client_msg_id.lower()", "__import__('uuid').uuid4().hex"),
        "worker kill",
        near="hall.db",
    ),
    Mutant(
        "what people say is passed before it is an event",
        "kingdom.hall.channel.listener:HallListener._take",
        replace("_Batch(A, B, is_safe=not said)", "_Batch(A, B, is_safe=True)"),
        "envoy",
        near="test_what_was_said_before_a_kill_is_one_event",
    ),
    Mutant(
        "what a system says is heard",
        "kingdom.hall.channel.listener:HallListener._said",
        replace('message.message_type == "SYSTEM"', "False"),
        "envoy",
        near="test_its_own_words_those_of_systems_and_those_in_other_rooms_are_not_heard",
    ),
    Mutant(
        "what is said in any room is heard",
        "kingdom.hall.channel.channel:Hall._said",
        replace("room == THRONE_ROOM", "True"),
        "envoy",
        near="test_its_own_words_those_of_systems_and_those_in_other_rooms_are_not_heard",
    ),
    Mutant(
        "the kingdom waits for ever for what it repeats",
        "kingdom.hall.database.persist:_stored_before",
        replace("not is_redelivery and A", "not is_redelivery"),
        "database",
        near="test_what_the_kingdom_repeats_is_told_again_under_the_same_id",
        quick=True,
    ),
    Mutant(
        "who is in the throne room is not in the rooms of tasks",
        "kingdom.hall.database.own_rooms:open_room",
        replace('db.all("members", room_id=THRONE_ROOM)', "[]"),
        "database",
        near="test_the_kingdoms_rooms_have_the_owners_and_who_is_in_the_throne_room_is_in_all",
    ),
    Mutant(
        "what is removed is named nowhere",
        "kingdom.hall.worker.commands:remove_message",
        replace('db.do("note_removal", message_id=A, item_id=B)', "None"),
        "commands",
        near="test_a_removed_message_is_blank_and_an_item_of_its_own_tells_so_however_often_it_is_ordered",
    ),
    Mutant(
        "who is banned keeps the sessions",
        "kingdom.hall.database.moderation:end_sessions",
        drop("accounts.end_sessions"),
        "commands",
        near="test_a_ban_ends_all_sessions_and_tells_them_again_when_it_is_repeated",
    ),
    Mutant(
        "a search stops at what it reads at once",
        "kingdom.hall.database.search:_found",
        replace("floor_id or None", "None"),
        "database",
        near="test_a_search_goes_on_where_it_stopped_and_misses_nothing",
    ),
    Mutant(
        "what is looked for is a pattern",
        "kingdom.hall.database.search:_pattern",
        replace("_SPECIAL.sub(_ESCAPED, A)", "A"),
        "database",
        near="test_a_text_is_found_inside_words_with_two_syllables_or_one_and_is_no_pattern",
        quick=True,
    ),
    Mutant(
        "what was removed comes back",
        "kingdom.hall.database.rebuild:_store",
        replace("message.removes is not None and A", "False"),
        "rebuild",
    ),
    Mutant(
        "what a question offers is not kept",
        "kingdom.hall.database.persist:persist",
        drop("note_about"),
        "database",
        near="test_what_a_message_is_about_is_kept_with_it_until_it_is_removed",
    ),
    Mutant(
        "what a question offers outlives it",
        "kingdom.hall.database.moderation:blank",
        replace('db.do("forget_about", message_id=A)', "None"),
        "database",
        near="test_what_a_message_is_about_is_kept_with_it_until_it_is_removed",
    ),
    Mutant(
        "a question that comes back offers nothing",
        "kingdom.hall.database.rebuild:_store",
        drop("note_about"),
        "rebuild",
    ),
    Mutant(
        "a question offers nothing in the hall",
        "kingdom.hall.channel.channel:_about",
        replace("draft.choices", "()"),
        "envoy",
        near="test_a_task_gets_a_room_where_it_asks_and_the_answer_becomes_one_event",
    ),
    Mutant(
        "a room is cut without a note",
        "kingdom.hall.database.retention:_cut_room",
        replace('db.do("note_cut", room_id=A, message_id=B)', "None"),
        "database",
        near="test_rooms_keep_their_messages_as_long_as_each_of_them_says_and_the_newest_always",
    ),
    Mutant(
        "every room is cut as usual",
        "kingdom.hall.database.retention:cut",
        replace("{usual, *A} - {0}", "{usual} - {0}"),
        "database",
        near="test_rooms_keep_their_messages_as_long_as_each_of_them_says_and_the_newest_always",
    ),
    Mutant(
        "messages are copied before the rows that they lead to",
        "kingdom.court.upkeep.backup",
        constant("CAUSES_OF_ROWS", "()"),
        "backup",
    ),
    Mutant(
        "a line too many hides the next event",
        "kingdom.hall.topics.batches:Batches.numbered",
        replace("self.is_there(A)", "False"),
        "damaged",
        near="test_a_file_with_lines_too_many_hides_nothing_of_those_behind_it",
        quick=True,
    ),
    Mutant(
        "a writer does not notice that its file was changed",
        "kingdom.hall.topics.batches:Batches._take_name",
        replace("A == self._written", "True"),
        "damaged",
        near="test_a_writer_notices_that_its_newest_file_was_changed",
    ),
    Mutant(
        "a database whose file is gone goes on unseen",
        "kingdom.hall.database.sqlite:SqliteDatabase._transaction",
        drop("self._look"),
        "lost",
        near="test_nothing_is_read_or_written_while_the_file_is_gone_and_all_is_there_when_it_is_back",
        quick=True,
    ),
    Mutant(
        "the log of one database is applied to the next",
        "kingdom.hall.database.sqlite:SqliteDatabase._let_go",
        replace('connection.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")', "None"),
        "lost",
        near="test_a_copy_of_the_same_database_is_taken_and_holds_what_the_copy_held",
    ),
    Mutant(
        "any database will do",
        "kingdom.hall.database.sqlite:SqliteDatabase._connect",
        drop("self._check_identity"),
        "lost",
        near="test_another_database_is_refused_until_its_own_is_back",
    ),
    Mutant(
        "a session that nobody knows is good",
        "kingdom.hall.gateway.sessions:Sessions.is_good",
        replace("A is None", "False"),
        "sessions",
        near="test_a_session_that_the_database_does_not_know_is_refused",
        quick=True,
    ),
    Mutant(
        "a restored database revives ended sessions",
        "kingdom.hall.gateway.sessions:Sessions.look",
        replace("ended | await A", "ended"),
        "sessions",
        near="test_a_restored_database_revives_no_session",
    ),
    Mutant(
        "everybody is believed who names an address",
        "kingdom.hall.gateway.proxies:Proxies._trusts",
        body("return True"),
        "proxies",
        near="test_who_asks_is_the_last_whom_a_trusted_proxy_names",
        quick=True,
    ),
    Mutant(
        "the first address of a list is believed",
        "kingdom.hall.gateway.proxies:Proxies._client",
        replace("reversed(list(hops))", "list(hops)"),
        "proxies",
        near="test_who_asks_is_the_last_whom_a_trusted_proxy_names",
    ),
    Mutant(
        "any table will do",
        "kingdom.hall.database.sqlite:SqliteDatabase.migrate",
        drop("_check_tables"),
        "database",
        near="test_tables_that_cannot_be_used_are_named_and_left_alone",
    ),
    # 7: clocks
    Mutant(
        "the id of a message follows the clock alone",
        "kingdom.hall.database.ids:next_ulid",
        replace("A is not None and B <= C", "False"),
        "clock",
    ),
    Mutant(
        "a clock that is set back ends sessions",
        "kingdom.hall.gateway.tokens:Tokens.read",
        replace("A + SET_BACK_SECONDS", "A + 60"),
        "clock",
    ),
    # 22: forged and replayed input
    Mutant(
        "clients may send what the kingdom sends",
        "kingdom.hall.gateway.inputs",
        replace('("TEXT", "IMAGE")', '("TEXT", "IMAGE", "SYSTEM")'),
        "forged",
    ),
    Mutant(
        "everybody joins the kingdom's rooms", "kingdom.hall.gateway.store:_may_join", body("return True"), "forged"
    ),
    Mutant("everybody orders", "kingdom.hall.gateway.store:check_owner", body("return None"), "forged"),
    Mutant(
        "somebody may be called as the kingdom is",
        "kingdom.hall.gateway.rest:Rest.register",
        replace("own_rooms.looks_own(A)", "False"),
        "forged",
    ),
    Mutant(
        "a message that comes again is another one",
        "kingdom.hall.gateway.sockets:Sockets._append",
        replace(
            "MessageCreated(new_uuid(), A, B, sent.client_msg_id, C, D, E)",
            "MessageCreated(new_uuid(), A, B, new_uuid(), C, D, E)",
        ),
        "forged",
    ),
]


@pytest.mark.parametrize("mutant", mutants.chosen(MUTANTS), ids=lambda mutant: mutant.name)
def test_a_seeded_defect_is_caught(mutant: Mutant, figure: Figure) -> None:
    assert mutants.is_caught(mutant, CHECKS[mutant.caught_by])
