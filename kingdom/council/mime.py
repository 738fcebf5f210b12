"""The codec of the council's messages as a module. Its only source, scripts/lib/ignite_mime.py, stands alone."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

from kingdom.base.home.places import find_codec


def _load() -> ModuleType:
    loader = SourceFileLoader("ignite_mime", str(find_codec()))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


_codec = _load()

build_message: Callable[..., str] = _codec.build_message
parse_message: Callable[[str], dict[str, str | list[str]]] = _codec.parse_message
extract_body: Callable[[str], str] = _codec.extract_body
update_status: Callable[..., str] = _codec.update_status
update_header: Callable[[str, str, str], str] = _codec.update_header
remove_header: Callable[[str, str], str] = _codec.remove_header
split: Callable[[str], tuple[list[tuple[str, str]], str, str]] = _codec.split
faults: Callable[..., list[str]] = _codec.faults
warnings: Callable[[bytes], list[str]] = _codec.warnings
folder_of: Callable[[str], str] = _codec.folder_of
rewrite: Callable[..., None] = _codec.rewrite
PROGRAM: str = _codec.PROGRAM
PRIORITIES: tuple[str, ...] = _codec.PRIORITIES
AGENTS: list[str] = _codec.AGENTS
TYPES: dict[str, tuple[str, str, str]] = _codec.TYPES
main: Callable[..., int] = _codec.main
