"""A browser for all tests of the page, and a hall for each file of them."""

from collections.abc import Callable, Iterator

import pytest

from tests.hall.gateway.halls import OPEN, Hall, running

try:
    from playwright.sync_api import Browser, sync_playwright

    from tests.web.screens import Screen, find_chromium, launch
except ImportError:
    collect_ignore_glob = ["test_*.py"]
    HAS_BROWSER = False
else:
    HAS_BROWSER = True


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Return the machine's own Chromium."""
    if find_chromium() is None:
        pytest.skip("NO CHROMIUM HERE, SO THE PAGE IS NOT TRIED IN A BROWSER: apt-get install chromium")
    with sync_playwright() as playwright, launch(playwright) as started:
        yield started


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
