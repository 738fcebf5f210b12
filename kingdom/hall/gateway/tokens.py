"""Tokens that identify a request's user: signed, with an expiry, and for this service alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import jwt

from kingdom.base.disk.atomic import Disk, make_folder
from kingdom.base.disk.codec import read_bytes
from kingdom.base.errors import BadHome, Collision

ALGORITHM = "HS256"
CLAIMS = ["sub", "email", "sid", "iat", "exp", "aud"]
AUDIENCE = "kingdom-hall"
LIFETIME_SECONDS = 86_400
SET_BACK_SECONDS = 7_200
"""How far the clock may be set back without ending the sessions that began lately."""
SECRET = "KINGDOM_JWT_SECRET"
"""The variable, of the environment or `.env`, with a secret that is used instead of one made here."""
SHORTEST_SECRET = 32


class Caller(NamedTuple):
    """Whose token it is."""

    user: str
    email: str
    #: The session that it belongs to.
    session: str
    #: When the token was given out and when it ends, seconds since the epoch.
    since: float
    until: float


class Tokens:
    def __init__(self, secret: bytes, clock: Callable[[], float]) -> None:
        self._secret = secret
        self._clock = clock

    def make(self, user: str, email: str, session: str) -> str:
        """Return a token of a user for one session."""
        now = int(self._clock())
        claims: dict[str, object] = {"sub": user, "email": email, "sid": session, "aud": AUDIENCE}
        claims |= {"iat": now, "exp": now + LIFETIME_SECONDS}
        return jwt.encode(claims, self._secret, ALGORITHM)

    def read(self, token: object) -> Caller | None:
        """Return whose token this is; None when it is none of ours, or has ended."""
        if not isinstance(token, str):
            return None
        try:
            claims = jwt.decode(
                token,
                self._secret,
                algorithms=[ALGORITHM],
                audience=AUDIENCE,
                options={"require": CLAIMS, "verify_exp": False, "verify_iat": False},
            )
            who = (claims["sub"], claims["email"], claims["sid"])
            caller = Caller(*who, float(claims["iat"]), float(claims["exp"]))
        except (jwt.InvalidTokenError, ValueError, TypeError, UnicodeEncodeError):
            return None
        # By our own clock, which tests can set.
        within = caller.since <= self._clock() + SET_BACK_SECONDS and self._clock() < caller.until
        return caller if within and all(isinstance(part, str) for part in who) else None


def find_secret(given: Mapping[str, str], path: Path, disk: Disk) -> bytes:
    """Return the secret that is given, or the one at `path`, which is made when there is none."""
    if named := given.get(SECRET):
        if len(named) < SHORTEST_SECRET:
            raise BadHome(path=path, why=f"{SECRET} is shorter than {SHORTEST_SECRET} characters")
        return named.encode()
    make_folder(path.parent)
    with suppress(Collision):
        disk.create(path, secrets.token_hex(32).encode())
    return read_bytes(path)
