"""Row 35: people are in the hall for most of an hour, and little happens."""

import os
from contextlib import ExitStack

import pytest

from tests.faults.oracle import Figure
from tests.faults.timers.long import LONG

pytestmark = [LONG, pytest.mark.filterwarnings("ignore::ResourceWarning")]
MINUTES = int(os.environ.get("MINUTES", "50"))


def test_a_quiet_hour_in_the_hall(figure: Figure) -> None:
    browsers = pytest.importorskip("playwright.sync_api", reason="no playwright here: bin/setup web")
    from tests.faults.timers import quiet_hour
    from tests.web.screens import find_chromium, launch

    if find_chromium() is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with ExitStack() as stack:
        playwright = stack.enter_context(browsers.sync_playwright())
        outcome = quiet_hour.run([stack.enter_context(launch(playwright)) for _ in range(2)], MINUTES)
    figure(f"row 35 {outcome}")
    assert outcome.wrong == []
