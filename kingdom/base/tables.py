"""The loader of extension tables, whose rows read "module:attribute"."""

from importlib import import_module
from typing import Any


def load(row: str) -> Any:
    """Import what a row names and return it."""
    module, _, attribute = row.partition(":")
    return getattr(import_module(module), attribute)
