"""Secrets for the brokers are in `.env` alone, and one that is not there is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.base.errors import BadInput
from kingdom.hall.topics.base import TopicsKit

kafka = pytest.importorskip("kingdom.hall.topics.kafka", reason="no confluent_kafka here: make test-distributed")


def options(home: Path, given: dict[str, Any], **secrets: str) -> Any:
    kit = TopicsKit(home, home, "process", lambda: None, {"kafka": {"options": given}}, secrets=secrets)
    kafka.KafkaTopics(kit)
    return kafka.given_options(given, kit)


def test_what_env_holds_takes_the_place_of_its_name(home: Path) -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.password": "$KAFKA",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert options(home, given, KAFKA="geheim") == {**given, "sasl.password": "geheim"}


@pytest.mark.parametrize("key", ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"])
def test_a_secret_in_the_configuration_is_refused(key: str, home: Path) -> None:
    with pytest.raises(BadInput, match=rf"hall\.yaml: kafka\.options\.{key}: write the secret to \.env") as refused:
        options(home, {key: "geheim"})
    assert "geheim" not in str(refused.value)


def test_a_name_that_env_does_not_have_is_said(home: Path) -> None:
    with pytest.raises(BadInput, match=r"kafka\.options\.sasl\.password: KAFKA is not in \.env"):
        options(home, {"sasl.password": "$KAFKA"})
