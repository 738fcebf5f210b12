"""A database that is reached by TLS with a password: what is wrong is said in one sentence, without the password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.base.errors import KingdomError
from kingdom.base.home.places import Places
from kingdom.hall.database.opening import ADDRESS, open_database
from tests.certificates import certified
from tests.distributed.postgres import Postgres, running_postgres

PASSWORD = "a-password-of-nobody"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Postgres, Path]]:
    """Yield a database with TLS, and the authority that it is certified by."""
    made = certified(tmp_path_factory.mktemp("authority"), "DNS:localhost")
    with running_postgres() as postgres:
        postgres.take_tls(made, PASSWORD)
        postgres.stop()
        postgres.start()
        yield postgres, made.authority


def said(url: str, home: Path) -> str:
    database = open_database({}, {ADDRESS: url}, Places(home))
    try:
        database.migrate()
        database.check()
    except KingdomError as error:
        return str(error)
    finally:
        database.close()
    return ""


def test_the_right_certificate_and_password_are_taken(guarded: tuple[Postgres, Path], home: Path) -> None:
    postgres, authority = guarded
    assert said(postgres.url_of_guest(PASSWORD, sslmode="verify-full", sslrootcert=authority), home) == ""


def test_what_is_wrong_is_said_in_one_sentence(guarded: tuple[Postgres, Path], home: Path) -> None:
    postgres, authority = guarded
    other = certified(home / "other").authority
    verified = {"sslmode": "verify-full", "sslrootcert": authority}
    cases = {
        "certificate verify failed": postgres.url_of_guest(PASSWORD, sslmode="verify-full", sslrootcert=other),
        'does not match host name "127.0.0.1"': postgres.url_of_guest(PASSWORD, "127.0.0.1", **verified),
        'password authentication failed for user "guest"': postgres.url_of_guest("wrong", **verified),
        "no encryption": postgres.url_of_guest(PASSWORD, sslmode="disable"),
    }
    for why, url in cases.items():
        line = said(url, home)
        assert why in line
        assert line.startswith("the database cannot be used now: ")
        assert "\n" not in line
        assert len(line) < 400
        assert PASSWORD not in line
        print(line)
