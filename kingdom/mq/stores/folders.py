"""Folder names for queues: readable for plain names, one to one for all of them, never a path."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote

LONGEST = 120


def folder_of(queue: str) -> str:
    """What is not a letter, a digit or one of `_-.` is written %XX; very long names end in a hash instead."""
    text = quote(queue, safe="", errors="surrogatepass").replace("~", "%7E")
    if text.startswith("."):
        text = f"%2E{text[1:]}"
    if len(text) <= LONGEST:
        return text
    return f"{text[:40].rstrip('%')}~{sha256(queue.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
