"""Hash and verify passwords one at a time, on a thread of their own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from kingdom.hall.database import passwords


class Passwords:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        self._nobodys = passwords.hashed("nobody")

    async def hash(self, password: str) -> str:
        """Return the hash of a password."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, passwords.hashed, password)

    async def verify(self, known: str | None, password: str) -> bool:
        """Return whether a password has this hash; without one it takes just as long."""
        verified = (known or self._nobodys, password)
        fits = await asyncio.get_running_loop().run_in_executor(self._thread, passwords.fits, *verified)
        return fits and known is not None

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)
