"""The grammar of a message's name."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kingdom.mq import names
from kingdom.mq.names import Ids

NOW = 1_763_465_000_123
ID = Ids(seed=1).message_id(NOW, 42)
PLAIN = names.plain(NOW, 42, ID)
TOLD = names.compose(5, NOW, 42, names.first_fields(NOW + 1, "me", by_hand=True), ID)


def test_a_plain_name_is_what_the_general_form_gives_too() -> None:
    assert names.compose(0, NOW, 42, names.first_fields(0, ""), ID) == PLAIN
    assert len(PLAIN) == names.PLAIN_LENGTH


def test_what_is_written_is_read_again() -> None:
    assert (names.priority_of(TOLD), names.due_of(TOLD), names.attempt_of(TOLD)) == (5, NOW, 0)
    assert (names.expires_of(TOLD), names.target_of(TOLD)) == (NOW + 1, names.digest("me"))
    assert (names.is_by_hand(TOLD), names.is_dead_letter(TOLD), names.is_quarantined(TOLD)) == (True, False, False)
    assert (names.created_of(TOLD), names.tie_of(ID)) == (NOW, 42)
    assert (TOLD[names.MESSAGE_ID], TOLD[names.SEQUENCE], TOLD[names.CREATED]) == (ID, "00000042", names.id_prefix(NOW))


@pytest.mark.parametrize("name", [PLAIN, TOLD])
def test_a_lease_adds_its_fields_and_leaves_the_others(name: str) -> None:
    leased, attempt = names.leased(
        name, NOW + 30_000, 30_000, "0123456789abcdef", names.digest("c"), another_attempt=True
    )
    assert (attempt, names.attempt_of(leased), names.due_of(leased)) == (1, 1, NOW + 30_000)
    fields = names.fields_of(leased)
    assert (fields[names.LEASE], fields[names.CONSUMER]) == ("0123456789abcdef", names.digest("c"))
    before = {**names.fields_of(name), names.ATTEMPTS: "1"}
    assert names.without_lease(leased) == before
    assert names.is_name(leased)


def test_names_sort_by_priority_then_due_then_sequence() -> None:
    ordered = [
        names.compose(1, NOW + 5, 9, {"": "0"}, ID),
        names.compose(0, NOW, 2, {"": "0"}, ID),
        names.compose(0, NOW + 1, 1, {"": "0"}, ID),
        names.compose(-1, NOW, 1, {"": "0"}, ID),
    ]
    assert all(first < then for first, then in pairwise(ordered))


@pytest.mark.parametrize("name", [PLAIN, TOLD])
def test_a_turned_name_begins_with_its_due_time_and_turns_back(name: str) -> None:
    turned = names.due_first(name)
    assert int(turned[names.TURNED_DUE]) == names.due_of(name)
    assert names.rank_first(turned) == name


def test_a_revived_dead_letter_keeps_priority_and_target_alone() -> None:
    dead = names.changed(TOLD, NOW, {**names.fields_of(TOLD), "": "3", names.REASON: "TIMEOUT", names.DEAD_SINCE: "1"})
    assert names.is_dead_letter(dead)
    revived = names.revived(dead, NOW + 9, 43)
    assert (names.attempt_of(revived), names.priority_of(revived), names.due_of(revived)) == (0, 5, NOW + 9)
    assert names.fields_of(revived).keys() == {names.ATTEMPTS, names.TARGET, names.BY_HAND, names.REVIVED}
    assert revived[names.MESSAGE_ID] == ID


def test_the_same_failures_are_counted_in_a_row() -> None:
    count, text = names.count_same_failures("", "full")
    assert (count, names.count_same_failures(text, "full")[0], names.count_same_failures(text, "other")[0]) == (1, 2, 1)


@pytest.mark.parametrize("queue", ["q", "a:b", "-", "큐"])
def test_a_key_tells_its_queue_and_its_message(queue: str) -> None:
    key = names.key_of(queue, TOLD)
    assert (names.queue_of_key(key), key[names.MESSAGE_ID]) == (queue, ID)
    low, high = names.key_range(queue)
    assert low <= key < high
    assert names.queue_of_key("nonsense") == ""


def test_an_id_fits_into_a_number() -> None:
    assert names.id_from_bytes(names.id_as_bytes(ID)) == ID
    assert names.id_from_bytes(names.id_as_bytes("")) == ""


@pytest.mark.parametrize(
    ("key", "message_id"),
    [
        ("msg:telemetry:0A1B-2C3D-4E5F-6789-ABCD", "f24b1d00-82d7-58a5-d652-a4f9406453ff"),
        ("큐", "b58e1ceb-9315-5503-096c-e6d9398c0184"),
    ],
)
def test_the_id_that_stands_for_the_key_of_another_system_never_changes(key: str, message_id: str) -> None:
    """Clients ask for it, and stores that exist hold it."""
    assert names.foreign_id(key) == message_id
    assert names.is_id(message_id)
