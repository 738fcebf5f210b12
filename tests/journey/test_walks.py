"""docs/walk-of-an-event.md says how many files a message goes through at most, each way."""

from __future__ import annotations

import re

import pytest

from bench import walk
from kingdom.base.home.places import find_data

PAGE = (find_data() / "docs/walk-of-an-event.md").read_text()
MOST = {name: int(most) for name, most in re.findall(r"^\| `(\w+)` \| .* \| (\d+) \|$", PAGE, re.MULTILINE)}


def test_the_page_has_a_row_for_each_way() -> None:
    assert list(MOST) == list(walk.WALKS)


@pytest.mark.parametrize("name", walk.WALKS)
def test_a_message_goes_through_no_more_files_than_the_page_says(name: str) -> None:
    files = walk.files_of(name)
    if len(files) > MOST[name]:  # on a busy machine: what the message needs comes again
        files = min(files, walk.files_of(name), key=len)
    assert len(files) <= MOST[name], sorted(files)
    assert len(files) > MOST[name] // 2, "the trace has seen too little"
