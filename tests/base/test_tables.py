import pytest

from kingdom.base.tables import load
from kingdom.court.steward.tmux import Tmux


def test_a_row_is_loaded_by_module_and_attribute() -> None:
    assert load("kingdom.court.steward.tmux:Tmux") is Tmux


@pytest.mark.parametrize("row", ["kingdom.no_such_module:Store", "kingdom.court.steward.tmux:NoSuchSteward"])
def test_a_row_that_names_nothing_is_an_error(row: str) -> None:
    with pytest.raises((ImportError, AttributeError)):
        load(row)
