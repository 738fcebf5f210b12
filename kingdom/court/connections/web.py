"""One way to ask a service over HTTP: with deadlines, within its limits, and to its own address alone.

The only file that knows `requests`, which is loaded with the first question.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from kingdom import __version__
from kingdom.base.words import one_line
from kingdom.court.connections.base import ServiceDown, ServiceLimited, ServiceRefused

if TYPE_CHECKING:
    import requests

LARGEST = 32 << 20
PART = 1 << 16
GUESSED_PAUSE = 60.0
"""How long to wait when a service limits us and does not say for how long."""
LONGEST_PAUSE = 86400.0


@dataclass(frozen=True)
class Deadlines:
    """Seconds for one answer."""

    connect: float = 5.0
    #: Between two pieces.
    read: float = 10.0
    #: For the whole answer, however it trickles.
    total: float = 30.0


PATIENT = Deadlines()
QUICK = Deadlines(connect=3.0, read=5.0, total=8.0)
"""For a person who waits."""


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    #: By names in lower case.
    headers: Mapping[str, str]
    #: The JSON of the body; None where there is none.
    body: Any
    #: The service's own clock, in seconds since the epoch; ours where it says nothing.
    at: float

    def next_page(self) -> str:
        """Return the address of the next page, or ""."""
        for part in self.headers.get("link", "").split(","):
            address, _, words = part.partition(";")
            if 'rel="next"' in words.replace(" ", ""):
                return address.strip().strip("<>")
        return ""


class Web:
    """A service at one address. Used by one thread at a time."""

    def __init__(
        self,
        service: str,
        address: str,
        headers: Mapping[str, str],
        basic: tuple[str, str] | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._service = service
        self._address = f"{address.rstrip('/')}/"
        self._headers = {"User-Agent": f"kingdom/{__version__}", **headers}
        self._basic = basic
        self._deadlines = deadlines or PATIENT
        self._session: requests.Session | None = None

    def get(self, path: str, query: Mapping[str, str] | None = None, **headers: str) -> HttpAnswer:
        return self.ask("GET", path, query=query, headers=headers)

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Return the answer, of a status below 400.

        ServiceLimited says how long to be quiet; ServiceRefused is for all else that is our fault, and ServiceDown
        for what is not. Nothing of the question stands in an error.
        """
        import requests

        until = time.monotonic() + self._deadlines.total
        try:
            response = self._open().request(
                method,
                self._url(path),
                params=query,
                json=body,
                headers=headers,
                timeout=(self._deadlines.connect, self._deadlines.read),
                stream=True,
                allow_redirects=False,
            )
            with response:
                data = self._whole(response, until)
        except requests.Timeout:
            raise ServiceDown(service=self._service, why="it does not answer in time") from None
        except requests.ConnectionError as error:
            raise ServiceDown(service=self._service, why=_cause(error)) from None
        except (requests.RequestException, OSError) as error:
            raise ServiceDown(service=self._service, why=type(error).__name__) from None
        return self._judged(response, data)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _open(self) -> requests.Session:
        """Return a session whose authorisation nothing in the environment replaces."""
        import requests

        if self._session is None:
            self._session = requests.Session()
            self._session.headers.update(self._headers)
            self._session.auth = self._basic or _keep
        return self._session

    def _url(self, path: str) -> str:
        """Return the whole address. A service may name other addresses of its own; our token goes nowhere else."""
        url = urljoin(self._address, path)
        if urlsplit(url)[:2] != urlsplit(self._address)[:2]:
            raise ServiceRefused(service=self._service, why=f"it names an address elsewhere: {one_line(url, 200)}")
        return url

    def _whole(self, response: requests.Response, until: float) -> bytes:
        import urllib3

        parts, size = [], 0
        try:
            while part := response.raw.read1(PART, decode_content=True):
                parts.append(part)
                size += len(part)
                if size > LARGEST:
                    raise ServiceDown(service=self._service, why=f"its answer is larger than {LARGEST >> 20} MB")
                if time.monotonic() > until:
                    raise ServiceDown(service=self._service, why="its answer took too long")
        except urllib3.exceptions.ReadTimeoutError:
            raise ServiceDown(service=self._service, why="it does not answer in time") from None
        except urllib3.exceptions.HTTPError:
            raise ServiceDown(service=self._service, why="its answer was cut off") from None
        return b"".join(parts)

    def _judged(self, response: requests.Response, data: bytes) -> HttpAnswer:
        headers = {name.lower(): value for name, value in response.headers.items()}
        status, now = response.status_code, time.time()
        at = _moment(headers.get("date", ""), now)
        if status >= 400:
            why = _said(status, data)
            if _is_limit(status, headers, why):
                pause = _named_pause(headers, at)
                seconds = GUESSED_PAUSE if pause is None else min(max(1.0, pause), LONGEST_PAUSE)
                raise ServiceLimited(service=self._service, seconds=seconds, named=pause is not None, why=why)
            if status >= 500 or status == 408:
                raise ServiceDown(service=self._service, why=why)
            raise ServiceRefused(service=self._service, why=why, status=status)
        if status >= 300 and status != 304:
            raise ServiceRefused(service=self._service, why=f"it has moved (HTTP {status}): correct its address")
        try:
            body = json.loads(data) if data.strip() else None
        except (ValueError, RecursionError):
            raise ServiceDown(service=self._service, why="its answer is no JSON, or was cut off") from None
        return HttpAnswer(status, headers, body, at)


def _keep(request: Any) -> Any:
    """Leave a request as it is: with an authorisation of its own, `requests` does not look for one in ~/.netrc."""
    return request


def _is_limit(status: int, headers: Mapping[str, str], why: str) -> bool:
    """Return whether an error asks us to leave the service alone for a while."""
    names_pause = "retry-after" in headers or _is_used_up(headers)
    return status == 429 or (status in (403, 503) and names_pause) or (status == 403 and "rate limit" in why.lower())


def _is_used_up(headers: Mapping[str, str]) -> bool:
    return headers.get("x-ratelimit-remaining") == "0" and headers.get("x-ratelimit-reset", "").isdigit()


def _named_pause(headers: Mapping[str, str], at: float) -> float | None:
    """Return how many seconds a service asks to be left alone; None when it names no time.

    Times are compared by the service's own clock, so that ours may be wrong.
    """
    if "retry-after" in headers:
        text = headers["retry-after"]
        until = at + float(text) if text.isdigit() else _moment(text, 0.0)
        return until - at if until else None
    return float(headers["x-ratelimit-reset"]) - at if _is_used_up(headers) else None


def _moment(text: str, otherwise: float) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return otherwise


def _said(status: int, data: bytes) -> str:
    """Return the service's own words about an error, with its code."""
    words = ""
    try:
        body = json.loads(data)
        if isinstance(body, dict):
            about = body.get("error")
            text = body.get("message") or (about.get("message") if isinstance(about, dict) else None)
            words = str(text or "; ".join(map(str, body.get("errorMessages") or ())))
    except (ValueError, RecursionError, TypeError):
        pass
    return f"{one_line(words, 200)} (HTTP {status})" if words else f"HTTP {status}"


def _cause(error: Exception) -> str:
    """Return why there is no connection, without the address and what goes with it."""
    text = str(error)
    known = {
        "refused": "the connection is refused",
        "NameResolutionError": "unknown host name",
        "Temporary failure in name resolution": "unknown host name",
        "certificate": "its certificate is not trusted",
        "unreachable": "the network is unreachable",
        "Connection aborted": "the connection was cut",
    }
    return next((words for part, words in known.items() if part in text), type(error).__name__)
