"""What a message becomes on a channel: in which pieces, and with which answers to choose from."""

from __future__ import annotations

import pytest

from kingdom.base.words import choices_in
from kingdom.court.envoy.channels import slack_text
from kingdom.court.envoy.channels.base import PostDraft
from kingdom.court.envoy.drafts import parts


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", [""]),
        ("ten of them", ["ten of", "them"]),
        ("0123456789", ["0123456789"]),
        ("01234567890", ["0123456789", "0"]),
        ("one two\nthree", ["one two", "three"]),
        ("a bcdefghijk", ["a bcdefghi", "jk"]),
        ("abcde fghijk", ["abcde fghi", "jk"]),
        ("abcdef ghijk", ["abcdef", "ghijk"]),
    ],
)
def test_a_long_text_is_cut_at_a_line_or_a_word_that_is_not_too_early(text: str, pieces: list[str]) -> None:
    assert parts(text, 10) == pieces


@pytest.mark.parametrize(
    ("lines", "choices"),
    [
        (["- one"], 0),
        (["- one", "- two"], 2),
        ([f"{number}. choice {number}" for number in range(10)], 10),
        ([f"{number}. choice {number}" for number in range(11)], 0),
        (["- " + "x" * 75, "- two"], 2),
        (["- " + "x" * 76, "- two"], 0),
        (["- one", "- one"], 0),
        (["- one", "- two", "and more"], 0),
        (["(a) one", "b) two"], 2),
    ],
)
def test_the_list_at_the_end_of_a_question_offers_its_answers(lines: list[str], choices: int) -> None:
    assert len(choices_in("\n".join(["which?", *lines]))) == choices


@pytest.mark.parametrize(
    ("metadata", "is_it"),
    [
        ({"event_type": slack_text.EVENT_TYPE, "event_payload": {"message": "msg-1"}}, True),
        ({"event_type": slack_text.EVENT_TYPE, "event_payload": {"message": "msg-2"}}, False),
        ({"event_type": "another", "event_payload": {"message": "msg-1"}}, False),
        ({"event_type": slack_text.EVENT_TYPE}, False),
        (None, False),
    ],
)
def test_a_post_in_slack_is_known_by_its_metadata(metadata: object, is_it: bool) -> None:
    draft = PostDraft("msg-1", "C1", "words")
    assert slack_text.metadata_of(draft) == {"event_type": slack_text.EVENT_TYPE, "event_payload": {"message": "msg-1"}}
    assert slack_text.is_post_of(draft, {"metadata": metadata}) is is_it
