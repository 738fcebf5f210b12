"""`kingdom systemd`: the unit that brings this home up with the machine."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from pathlib import Path

import click

from kingdom.base.program import home
from kingdom.base.words import printable

UNIT = """\
[Unit]
Description=Kingdom in {home}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
User={user}
Environment="KINGDOM_HOME={home}"
Environment="PATH={path}"
# Ready when every role works; well while none hangs for longer than the chamberlain takes to replace it.
Type=notify
WatchdogSec=300
ExecStart={program} up --foreground
ExecStopPost=-{program} down
# The chamberlain restarts a dead launcher within seconds; this is for the day when both are dead.
Restart=on-failure
RestartSec=15
TimeoutStartSec=infinity
TimeoutStopSec=60
# Soldiers finish their work: `down` ends the roles, and systemd kills none of the other processes.
KillMode=process
# One soldier that the kernel ends for its memory does not end the kingdom.
OOMPolicy=continue
UMask=0077
LimitNOFILE=65536

# Nothing is written outside the home. Sandboxes of soldiers need Landlock and namespaces of their own, and programs
# of models compile code as they run: so those three are open, and there is no MemoryDenyWriteExecute.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ReadWritePaths="{home}"
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=user mnt ipc
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service @mount landlock_create_ruleset landlock_add_rule landlock_restrict_self
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


@click.command(short_help="Print a systemd unit for this home.")
def systemd() -> None:
    """Print a systemd unit for this home, filled in and hardened: write it to /etc/systemd/system/kingdom.service, then
    `systemctl daemon-reload` and `systemctl enable --now kingdom`.
    """
    places = home.find()
    places.check()
    print(unit(places.home, getpass.getuser(), Path(shutil.which("kingdom") or f"{sys.prefix}/bin/kingdom")), end="")


def unit(folder: Path, user: str, program: Path) -> str:
    """Return the unit of a home that belongs to this user; `program` is the command."""
    path = os.pathsep.join([str(program.parent), "/usr/local/bin", "/usr/bin", "/bin"])
    home_path = printable(folder).replace("%", "%%")
    return UNIT.format(home=home_path, user=user, path=path.replace("%", "%%"), program=str(program).replace("%", "%%"))
