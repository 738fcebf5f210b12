from tests.cli.conftest import (
    court_answers as court_answers,
)
from tests.cli.conftest import (
    king_runs as king_runs,
)
from tests.cli.conftest import (
    model as model,
)
from tests.cli.conftest import (
    terminal as terminal,
)
from tests.cli.conftest import (
    types as types,
)
