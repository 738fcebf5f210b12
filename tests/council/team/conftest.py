from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.council.team.teams import Team, team_of


@pytest.fixture
def team(home: Path, tmp_path: Path) -> Iterator[Team]:
    with team_of(home, tmp_path / "shop") as team:
        yield team
