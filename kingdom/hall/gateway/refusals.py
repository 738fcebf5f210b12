"""Answers to refused requests: always an object with one sentence in it."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

Errors = list[dict[str, str]]


class HttpRefusal(Exception):
    """Ends a request. Answered by `answer`."""

    def __init__(self, status: int, message: str, errors: Errors | None = None, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors
        self.retry_after = retry_after


def unauthorized() -> HttpRefusal:
    return HttpRefusal(401, "Unauthorized")


def not_a_member() -> HttpRefusal:
    return HttpRefusal(403, "Not a member of this room")


def no_such_room() -> HttpRefusal:
    return HttpRefusal(404, "Room not found")


def invalid(*errors: tuple[str, str]) -> HttpRefusal:
    """Return the refusal of a body or query: each error is a dotted path and a sentence."""
    return HttpRefusal(400, "Validation failed", [{"path": path, "message": sentence} for path, sentence in errors])


def answer(refusal: HttpRefusal) -> Response:
    """Return the response that says so."""
    body: dict[str, object] = {"message": refusal.message}
    if refusal.errors is not None:
        body["errors"] = refusal.errors
    body |= {"error": HTTPStatus(refusal.status).phrase, "statusCode": refusal.status}
    headers = {"Retry-After": str(int(refusal.retry_after) + 1)} if refusal.retry_after else {}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body, refusal.status, headers)


async def on_refusal(request: Request, error: Exception) -> Response:
    """Answer a refusal that a route has raised."""
    assert isinstance(error, HttpRefusal)
    return answer(error)
