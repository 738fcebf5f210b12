import pytest

from kingdom.base.tables import load
from kingdom.mq.stores.memory import MemoryStore


def test_a_row_is_loaded_by_module_and_attribute() -> None:
    assert load("kingdom.mq.stores.memory:MemoryStore") is MemoryStore


@pytest.mark.parametrize("row", ["kingdom.no_such_module:Store", "kingdom.mq.stores.memory:NoSuchStore"])
def test_a_row_that_names_nothing_is_an_error(row: str) -> None:
    with pytest.raises((ImportError, AttributeError)):
        load(row)
