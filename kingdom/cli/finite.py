"""DailyCounter as people type them: neither nan nor inf is one."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number to count with", param, ctx)
        return number
