"""A policy's keys stand in the schema and beside the fields, once each."""

from __future__ import annotations

from kingdom.base.home import schemas
from kingdom.mq import policy
from kingdom.mq.policy import Policy, Retry


def test_every_key_of_the_schema_is_read_into_a_field() -> None:
    keys = dict(schemas.load("config/mq")["definitions"]["policy"]["properties"])
    queue = schemas.load("config/mq")["definitions"]["queue"]["properties"]
    keys |= {"schema": queue["schema"], "messageSchema": queue["messageSchema"]}
    read = {key.path.partition(".")[0] for key in policy._keys(Policy).values()}
    assert read == set(keys) - {"name", "policy"}
    assert {key.path for key in policy._keys(Retry).values()} == set(keys["retry"]["properties"])
    dlq = {key.path.removeprefix("dlq.") for key in policy._keys(Policy).values() if key.path.startswith("dlq.")}
    assert dlq == set(keys["dlq"]["properties"])


def test_a_policy_says_all_that_it_was_not_told() -> None:
    found = Policy.from_json({"retry": {"limit": 2}, "dlq": {"retentionDays": 0.5}, "ttlSec": 1.5})
    assert (found.retry.limit, found.retry.shape, found.retry.longest_s) == (2, "exponential", 60)
    assert (found.dlq_keep_ms, found.dlq_enabled, found.dlq_of("q")) == (43_200_000, True, "q-dlq")
    assert (found.ttl_ms, found.visibility_ms, found.dedup_ms) == (1_500, 30_000, 300_000)
    assert Policy.from_json(found.to_json()) == found


def test_a_policy_laid_over_another_replaces_single_keys_of_its_groups() -> None:
    below = {"ttlSec": 1, "retry": {"limit": 5, "backoff": "fixed"}}
    assert policy.merged(below, {"retry": {"limit": 2}, "archive": True}) == {
        "ttlSec": 1,
        "retry": {"limit": 2, "backoff": "fixed"},
        "archive": True,
    }
    assert below["retry"] == {"limit": 5, "backoff": "fixed"}
