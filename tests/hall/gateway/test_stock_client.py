"""The scenario of the hall by the stock JavaScript client, and by curl."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.hall.gateway.halls import Hall

HERE = Path(__file__).parent / "stock"
NPM_SECONDS, SCENARIO_SECONDS = 180, 120


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenario with its packages installed beside it."""
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("no npm here, so the stock Socket.IO client is not tried")
    folder = tmp_path_factory.mktemp("stock")
    for name in ("package.json", "package-lock.json", "scenario.mjs"):
        shutil.copy(HERE / name, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_SECONDS)
    if installed.returncode:
        pytest.skip("npm ci fails here, so the stock Socket.IO client is not tried")
    return folder


def test_the_scenario_holds_by_the_stock_client(client: Path, hall: Hall) -> None:
    command = ["node", "scenario.mjs", hall.url]
    told = subprocess.run(command, cwd=client, capture_output=True, text=True, timeout=SCENARIO_SECONDS)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count("ok    ") == 13


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_the_scenario_holds_by_curl(hall: Hall) -> None:
    command = ["sh", str(HERE / "scenario.sh"), hall.url]
    told = subprocess.run(command, capture_output=True, text=True, timeout=SCENARIO_SECONDS)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "WRONG" not in told.stdout
