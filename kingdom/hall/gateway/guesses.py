"""Wrong passwords of one account: so many from one address, and so many from all, in a time."""

from __future__ import annotations

from collections.abc import Callable

from kingdom.hall.gateway.limits import Limit, Rate
from kingdom.hall.gateway.refusals import HttpRefusal

LOGGED = Limit(1, 60.0)
"""How often one account is logged."""


class Guesses:
    """Once over the limit, even a correct password is refused; otherwise guessing would reveal it."""

    def __init__(self, from_one: Rate, from_all: Rate, warn: Callable[[str], None], clock: Callable[[], float]) -> None:
        """`from_one` is for an account and an address, so that nobody elsewhere locks somebody out; `from_all` is for
        the account."""
        self._from_one = from_one
        self._from_all = from_all
        self._warn = warn
        self._logged = Rate(LOGGED, clock)

    def check(self, account: str, address: str) -> None:
        """Refuse a password of an account from an address from which too many were wrong."""
        if wait := max(self._from_one.seconds_left((account, address)), self._from_all.seconds_left(account)):
            raise HttpRefusal(429, "Too many requests", retry_after=wait)

    def note_wrong(self, account: str, address: str, user: str | None) -> None:
        """Count a wrong password; the log names the user's ID when it was the last one for now."""
        keys = ((self._from_one, (account, address)), (self._from_all, account))
        left = [rate.wait_seconds(key) or rate.seconds_left(key) for rate, key in keys]
        if any(left) and not self._logged.wait_seconds(account):
            whose = f"of the user {user}" if user else "for an email that is not registered"
            self._warn(f"too many wrong passwords {whose}, the last one from {address}: more are refused for a while")
