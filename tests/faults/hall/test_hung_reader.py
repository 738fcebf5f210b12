"""The gateway beats as long as what brings messages to its sockets moves, and not because its event loop does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.base.disk.codec import read_json
from tests.faults import changes, mutants, trees
from tests.faults.changes import body, replace
from tests.faults.mutants import Mutant
from tests.hall.gateway.halls import running

HANGS = Mutant(
    "a reader of topics hangs", "kingdom.hall.topics.files:FilesFollower.poll", body("while True:\n    time.sleep(60)")
)
BEATS_ALONE = Mutant(
    "the loop beats alone", "kingdom.hall.gateway.job:GatewayJob._serve", replace("_first_of(A, B)", "asyncio.sleep(0)")
)
LOOKS = 12


def beats(tree: Path) -> bool:
    """Whether a gateway goes on beating for some seconds once it listens."""
    with running("gateway", tree=tree) as hall:
        path = hall.places.heartbeat("gateway")
        seen = {read_json(path)["seq"]}
        trees.until(lambda: seen.add(read_json(path)["seq"]) or len(seen) > 3, LOOKS)  # type: ignore[func-returns-value]
        return len(seen) > 3


def test_a_gateway_whose_reader_hangs_beats_no_more_and_ends_when_asked() -> None:
    tree = mutants.plant(HANGS)
    try:
        assert not beats(tree)
    finally:
        trees.remove(tree)


@pytest.mark.skipif(not trees.ALL_MUTANTS, reason="in make faults MUTANTS=1")
def test_a_seeded_defect_is_caught() -> None:
    tree = mutants.plant(HANGS)
    try:
        path, text = changes.changed(tree, BEATS_ALONE.place, BEATS_ALONE.change)
        path.write_text(text)
        trees.compile_file(path)
        assert beats(tree)
    finally:
        trees.remove(tree)
