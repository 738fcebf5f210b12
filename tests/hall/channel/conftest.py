from tests.court.envoy.conftest import (
    clock as clock,
)
from tests.court.envoy.conftest import (
    more_channels as more_channels,
)
