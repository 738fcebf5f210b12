"""A call that may wait for the network, beside the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class BackgroundCall:
    """One call in a thread of its own, which rings when it has ended. At the process's end it ends as well."""

    def __init__(self, call: Callable[[], Any], ring: Callable[[], None]) -> None:
        self._call = call
        self._ring = ring
        self._value: Any = None
        self._error: BaseException | None = None
        #: Set before it rings: the thread itself ends a little later.
        self.is_done = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> Any:
        """Return what the call has returned, or raise what it has raised. Only after it is done."""
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001
            # The edge of the thread: `result` raises it in the loop.
            self._error = error
        finally:
            self.is_done = True
            self._ring()
