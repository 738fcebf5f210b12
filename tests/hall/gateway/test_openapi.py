"""/openapi.json is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import requests

from kingdom.hall.gateway.openapi import DESCRIPTION
from kingdom.hall.gateway.rest import OPERATIONS
from tests.hall.gateway.halls import CHECKOUT, SECONDS, Hall

CASES = Path(__file__).with_name("openapi_cases.py")


def test_it_names_every_operation_and_no_other(hall: Hall) -> None:
    told = requests.get(f"{hall.url}/openapi.json", timeout=SECONDS).json()
    named = {
        (method.upper(), path) for path, item in told["paths"].items() for method in item if method != "parameters"
    }
    assert named == set(OPERATIONS)
    assert told == DESCRIPTION


def test_every_operation_answers_as_described() -> None:
    """In a process of its own: to make the inputs takes seconds, when tests are collected, in every worker."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)]
    done = subprocess.run(pytest, cwd=CHECKOUT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert f"{len(OPERATIONS)} passed" in done.stdout
