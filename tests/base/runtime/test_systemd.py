"""What a role tells systemd."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kingdom.base.runtime import systemd
from tests.waiting import SOON


@pytest.mark.parametrize("kind", ["a path", "abstract"])
def test_what_systemd_is_told_arrives_whole(home: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    address = f"@{home}" if kind == "abstract" else str(home / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{home}" if kind == "abstract" else address)
        manager.settimeout(SOON)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        systemd.tell(systemd.READY, systemd.WELL)
        assert manager.recv(100) == b"READY=1\nWATCHDOG=1"


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_where_nobody_listens_nothing_is_told_and_nothing_fails(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    systemd.tell(systemd.ENDS)
