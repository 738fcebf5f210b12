"""Hash and verify passwords. One at a time, on a thread of their own: each takes a moment and many megabytes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import bcrypt
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

MEMORY_KIB, ROUNDS, LANES = 9_216, 4, 1
"""Some 20 ms and 9 MB, which a small machine bears when everybody comes in the morning."""
_BCRYPT = ("$2a$", "$2b$", "$2y$")
_BCRYPT_BYTES = 72
"""What bcrypt looks at; older services cut longer passwords."""


class Passwords:
    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=ROUNDS, memory_cost=MEMORY_KIB, parallelism=LANES)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        self._nobodys = self._hasher.hash("nobody")

    async def hash(self, password: str) -> str:
        """Return the hash of a password."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._hasher.hash, password)

    async def verify(self, known: str | None, password: str) -> bool:
        """Return whether a password has this hash; without one it takes just as long."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._verify, known, password)

    def is_outdated(self, known: str) -> bool:
        """Return whether a hash should be made anew at the next login."""
        return known.startswith(_BCRYPT) or self._hasher.check_needs_rehash(known)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _verify(self, known: str | None, password: str) -> bool:
        if known is not None and known.startswith(_BCRYPT):
            return bcrypt.checkpw(password.encode()[:_BCRYPT_BYTES], known.encode())
        try:
            self._hasher.verify(known or self._nobodys, password)
        except (VerificationError, InvalidHashError):
            return False
        return known is not None
