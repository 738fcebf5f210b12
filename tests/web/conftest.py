"""A browser for all tests of the page, and a hall for each file of them."""

import os
import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.hall.gateway.halls import OPEN, Hall, running

try:
    from playwright.sync_api import Browser, sync_playwright

    from tests.web.screens import Screen
except ImportError:
    collect_ignore_glob = ["test_*.py"]
    HAS_BROWSER = False
else:
    HAS_BROWSER = True

NAMES = ("chromium", "chromium-browser", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Return the machine's own Chromium."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("NO CHROMIUM HERE, SO THE PAGE IS NOT TRIED IN A BROWSER: apt-get install chromium")
    # /dev/shm is small in containers; names of attackers lead here; as root it does not start with a sandbox.
    options = ["--disable-dev-shm-usage", "--host-resolver-rules=MAP *.example 127.0.0.1"]
    options += ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=options)
        yield started
        started.close()


@pytest.fixture(scope="module")
def hall() -> Iterator[Hall]:
    """Return a running gateway and worker."""
    yield from run_hall()


def run_hall(**config: object) -> Iterator[Hall]:
    with running("gateway", "worker", config={**OPEN, **config}) as opened:
        yield opened


@pytest.fixture
def screens(browser: "Browser", hall: Hall) -> "Iterator[Callable[..., Screen]]":
    """Open screens. None may complain: of an error in a script, or of what the page's policy keeps out."""
    opened: list[Screen] = []

    def open_screen(*given: object, **options: object) -> Screen:
        opened.append(Screen(browser, hall.url, *given, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_screen
    complaints = [line for screen in opened for line in screen.complaints]
    for screen in opened:
        screen.close()
    assert complaints == []
