import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.watch.kingdoms import one_of
from tests.fixtures import WITHOUT_HALL
from tests.journey.kingdoms import Kingdom


@pytest.fixture(scope="module")
def kingdom() -> Iterator[Kingdom]:
    """One kingdom that is up, for a module whose tests do not disturb each other."""
    yield from founded("tmux")


@pytest.fixture
def own() -> Iterator[Kingdom]:
    """A kingdom that is up, for one test alone."""
    yield from founded("tmux")


@pytest.fixture(params=one_of("tmux"))
def launched(request: pytest.FixtureRequest) -> Iterator[Kingdom]:
    """A kingdom that is up, under each launcher."""
    yield from founded(request.param)


def founded(launcher: str, prepare: Callable[[Kingdom], None] = lambda kingdom: None) -> Iterator[Kingdom]:
    """A kingdom that is up, in a new home that `prepare` may have put something into."""
    if launcher == "tmux" and shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    home = Path(tempfile.mkdtemp(prefix="kd-", dir="/tmp"))
    kingdom = Kingdom(home)
    (kingdom.places.config / "system.yaml").write_text(json.dumps({"launcher": launcher, **WITHOUT_HALL}))
    prepare(kingdom)
    try:
        kingdom.ok("up")
        yield kingdom
    finally:
        kingdom.run("down", "--soldiers")
        shutil.rmtree(home, ignore_errors=True)
