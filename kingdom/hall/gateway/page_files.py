"""The page of the hall as files: read once, packed, and served under a path that names what is in them."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from kingdom.hall.gateway.refusals import HttpRefusal

FOLDER = Path(__file__).with_name("pages")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
"""What is served. Licences stand beside what they are for."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}
FOR_A_YEAR = "public, max-age=31536000, immutable"
ASK_FIRST = "no-cache"


class File(NamedTuple):
    content: bytes
    packed: bytes
    type: str
    etag: str
    cached: str


class PageFiles:
    """The files. All parts of a page come from one version: their paths hold its digest."""

    def __init__(self, folder: Path = FOLDER) -> None:
        found = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.suffix in TYPES
        }
        index = found.pop("index.html")
        parts = b"".join(name.encode() + b"\0" + content for name, content in found.items())
        version = hashlib.sha256(parts).hexdigest()[:16]
        base = f"pages/{version}/"
        index = _with_modules(index, found).replace(b'"pages/', f'"{base}'.encode())
        self._index = _file("index.html", index, ASK_FIRST)
        self._parts = {f"{version}/{name}": _file(name, content, FOR_A_YEAR) for name, content in found.items()}

    def answer(self, request: Request) -> Response:
        """Return the index, or the part that the path names."""
        part = request.path_params.get("part")
        file = self._index if part is None else self._parts.get(part)
        if file is None:
            raise HttpRefusal(404, "Not Found")
        headers = {**HEADERS, "ETag": file.etag, "Cache-Control": file.cached}
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        is_packed = "gzip" in request.headers.get("accept-encoding", "")
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        return Response(file.packed if is_packed else file.content, 200, headers, file.type)


def _file(name: str, content: bytes, cached: str) -> File:
    digest = hashlib.sha256(content).hexdigest()[:32]
    return File(content, gzip.compress(content, 9, mtime=0), TYPES[Path(name).suffix], f'"{digest}"', cached)


def _with_modules(index: bytes, found: Mapping[str, bytes]) -> bytes:
    """Return the index with a line for each module, so that none waits until another one that names it is there."""
    modules = [name for name in found if name.endswith(".js") and name not in ("main.js", "theme.js")]
    lines = "".join(f'    <link rel="modulepreload" href="pages/{name}" />\n' for name in modules)
    return index.replace(b"  </head>", lines.encode() + b"  </head>")
