"""Open the database that config/hall.yaml names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

from kingdom.base.home.config import Config
from kingdom.base.home.places import Places
from kingdom.base.tables import load
from kingdom.hall.database import DATABASES
from kingdom.hall.database.base import Database, refuse_url
from kingdom.hall.database.sqlite import mark_of

ADDRESS = "KINGDOM_DATABASE_URL"
"""The variable of `.env` that may hold the address, since there may be a password in it."""


def open_database(config: Config, secrets: Mapping[str, str], places: Places) -> Database:
    """Return the database that hall.yaml names, or `.env` in its place. It is first used when asked."""
    url = _url(config, secrets)
    if ADDRESS not in secrets and urlsplit(url).password:
        raise refuse_url(places, f"holds a password: write the whole address to .env, as {ADDRESS}=…")
    scheme = url.partition("://")[0]
    row = DATABASES.get({"postgres": "postgresql"}.get(scheme, scheme))
    if row is None:
        raise refuse_url(places, f"no database {scheme!r}; known are {', '.join(DATABASES)}")
    try:
        database = load(row)
    except ModuleNotFoundError as error:
        raise refuse_url(places, f"needs the package {error.name}: pip install 'yirang-kingdom[postgres]'") from None
    return cast(Database, database(url, places))


def is_there(config: Config, secrets: Mapping[str, str], places: Places) -> bool:
    """Return whether there is a database to look into, or should be; one on a server is taken to be there."""
    scheme, _, path = _url(config, secrets).partition(":///")
    file = places.home / path
    return scheme != "sqlite" or file.is_file() or mark_of(file).is_file()


def _url(config: Config, secrets: Mapping[str, str]) -> str:
    return secrets.get(ADDRESS) or str(config["database"])
