from tests.court.general.conftest import (
    clock as clock,
)
from tests.court.general.conftest import (
    general as general,
)
