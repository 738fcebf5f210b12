"""The gateway beats as long as what brings messages to its sockets moves, and not because its event loop does."""

from __future__ import annotations

from pathlib import Path

from kingdom.base.disk.codec import read_json
from tests.faults import trees
from tests.hall.gateway.halls import running

HANGS = (
    "kingdom/hall/topics/files.py",
    "return self._sleep.until_there_are(lambda: _read(self._readings, at_most), seconds)",
    "while True:\n            time.sleep(60)",
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
    with trees.program_with(*HANGS) as tree:
        assert not beats(tree)
