"""A local authority and a certificate for this machine, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Certified(NamedTuple):
    """Where the files are."""

    authority: Path
    certificate: Path
    key: Path


def certified(folder: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> Certified:
    """Make an authority, and a certificate for these names. Without openssl the test is skipped."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    folder.mkdir(parents=True, exist_ok=True)

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=tests"
    )
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "own.key", "-out", "own.csr", "-subj", "/CN=tests")
    (folder / "names").write_text(f"subjectAltName={names}\n")
    sign = ["x509", "-req", "-in", "own.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]
    openssl(*sign, "-extfile", "names", "-out", "own.pem")
    return Certified(folder / "ca.pem", folder / "own.pem", folder / "own.key")
