"""Hashes of passwords: ours are argon2, those of older services bcrypt. Each takes a moment and many megabytes."""

from __future__ import annotations

import bcrypt
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

LONG_ENOUGH, LONGEST = 6, 100
"""Characters of a new password."""
MEMORY_KIB, ROUNDS, LANES = 9_216, 4, 1
"""They cost a sign-in some 20 ms and 9 MB: a small machine has room for many at once."""
_HASHER = PasswordHasher(time_cost=ROUNDS, memory_cost=MEMORY_KIB, parallelism=LANES)
_BCRYPT = ("$2a$", "$2b$", "$2y$")
_BCRYPT_BYTES = 72
"""What bcrypt looks at; older services cut longer passwords."""


def hashed(password: str) -> str:
    """Return the hash of a password."""
    return _HASHER.hash(password)


def fits(known: str, password: str) -> bool:
    """Return whether a password has this hash."""
    if known.startswith(_BCRYPT):
        return bcrypt.checkpw(password.encode()[:_BCRYPT_BYTES], known.encode())
    try:
        return _HASHER.verify(known, password)
    except (VerificationError, InvalidHashError):
        return False


def is_outdated(known: str) -> bool:
    """Return whether a hash should be made anew at the next login."""
    return known.startswith(_BCRYPT) or _HASHER.check_needs_rehash(known)
