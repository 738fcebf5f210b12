"""Which general gets an event. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kingdom.base.home.manifests import Manifest
from kingdom.base.records.messages import Event


@dataclass(frozen=True, slots=True)
class Route:
    """Who gets an event."""

    general: str
    #: Why, in words for people.
    rule: str


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """The routes of all installed generals."""

    #: General by event type or wildcard.
    claims: Mapping[str, str]
    #: Keywords and their generals, the longest first.
    words: tuple[tuple[str, str], ...]
    #: Default repository by general.
    repos: Mapping[str, str | None]
    #: Generals that ask no model.
    modelless: frozenset[str]
    #: How many soldiers a general may have at the same time, where its manifest says.
    limits: Mapping[str, int]
    #: Claims of two generals.
    warnings: tuple[str, ...]

    def route(self, event: Event) -> Route | None:
        """Return who gets an event: by keyword if a person wrote it, then by type, then by the longest wildcard."""
        return self._by_words(event) or self.by_type(event.type)

    def needs_model(self, route: Route) -> bool:
        """Return whether what takes this route asks a model."""
        return route.general not in self.modelless

    def tried(self, event: Event) -> list[str]:
        """Return every rule that is tried, in order."""
        said = [f"word {word!r} → {general}" for word, general in self.words] if event.is_chat else []
        return [
            *said,
            *(f"subscribes {claim!r} → {self.claims.get(claim, 'nobody')}" for claim in candidates(event.type)),
        ]

    def _by_words(self, event: Event) -> Route | None:
        if not event.is_chat:
            return None
        text = _plain(str(event.payload.get("text", "")))
        for word, general in self.words:
            if _says(text, word):
                return Route(general, f"word {word!r}")
        return None

    def by_type(self, event_type: str) -> Route | None:
        """Return who gets an event of this type that no person wrote."""
        for claim in candidates(event_type):
            if claim in self.claims:
                return Route(self.claims[claim], f"subscribes {claim!r}")
        return None


def table(manifests: Collection[Manifest]) -> RoutingTable:
    """Build the routing table. The first manifest by name gets a claim; a second claim is a warning."""
    claims: dict[str, str] = {}
    words: dict[str, str] = {}
    repos: dict[str, str | None] = {}
    warnings: list[str] = []
    modelless = frozenset(manifest.name for manifest in manifests if not manifest.needs_model)
    limits = {manifest.name: manifest.max_soldiers for manifest in manifests if manifest.max_soldiers is not None}
    for manifest in sorted(manifests, key=lambda manifest: manifest.name):
        repos[manifest.name] = manifest.default_repo
        for taken, wanted in ((claims, manifest.subscribes), (words, [_plain(word) for word in manifest.keywords])):
            for claim in wanted:
                holder = taken.setdefault(claim, manifest.name)
                if holder != manifest.name:
                    warnings.append(f"{claim!r} belongs to {holder} already; {manifest.name} does not get it")
    longest_first = sorted(words.items(), key=lambda pair: (-len(pair[0]), pair))
    return RoutingTable(claims, tuple(longest_first), repos, modelless, limits, tuple(warnings))


def candidates(event_type: str) -> list[str]:
    """Return the claims that would match, most exact first: `a.b.c`, `a.b.*`, `a.*`, `*`."""
    parts = event_type.split(".")
    return [event_type, *(".".join([*parts[:depth], "*"]) for depth in range(len(parts) - 1, -1, -1))]


def _plain(text: str) -> str:
    """Return a text without case, and with every syllable as one character however it was typed."""
    return unicodedata.normalize("NFC", text).casefold()


def _says(text: str, word: str) -> bool:
    """Return whether a text says a word: as a whole word, but in Korean and Japanese endings follow without a space."""
    if word.isascii():
        return re.search(rf"(?<![a-z0-9_]){re.escape(word)}(?![a-z0-9_])", text) is not None
    return word in text
