"""The page behind an invitation's link: a form without a script, by which somebody registers."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Awaitable, Callable
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from kingdom.gateway import inputs
from kingdom.gateway.refusals import Refusal, invalid
from kingdom.gateway.rest import REGISTRATION, Rest

STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}body{max-width:22rem;margin:12vh auto;"
    "padding:0 1rem}label{display:block;margin:1rem 0}input,button{font:inherit;box-sizing:border-box;width:100%;"
    "padding:.5rem}[role=alert]{border-left:3px solid;padding-left:.75rem}"
)
POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
HEAD = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    f"<title>Kingdom</title><style>{STYLE}</style>"
)
FORM = """<h1>Join the hall</h1>{why}
<form method="post" action="/join" autocomplete="on"><input type="hidden" name="invite" value="{invite}">
<label>Email<input name="email" type="email" required maxlength="254" autocomplete="username" value="{email}"></label>
<label>Password, 6 characters or more
<input name="password" type="password" required minlength="6" maxlength="100" autocomplete="new-password"></label>
<button>Register</button></form>"""


async def show(rest: Rest, request: Request) -> Response:
    return _form(request.query_params.get("invite", ""))


async def register(rest: Rest, request: Request) -> Response:
    """Register as /auth/register does, and tell the outcome as a page."""
    rest.limit("registrations", request)
    given = await inputs.form(request, *REGISTRATION)
    checked = {name: value or None for name, value in given.items()}
    try:
        if errors := [(name, why) for name, check in REGISTRATION.items() if (why := check(checked[name]))]:
            raise invalid(*errors)
        user = await rest.add_user(checked)
    except Refusal as refusal:
        return _form(given["invite"], given["email"], refusal)
    return _page(f"<h1>Welcome</h1><p>{escape(user['email'])} is registered, and can sign in now.</p>", 201)


PAGES: dict[tuple[str, str], Callable[[Rest, Request], Awaitable[Response]]] = {
    ("GET", "/join"): show,
    ("POST", "/join"): register,
}


def _form(invite: str, email: str = "", refusal: Refusal | None = None) -> Response:
    why = ""
    if refusal is not None:
        sentences = [f"{error['path']}: {error['message']}" for error in refusal.errors or ()] or [refusal.message]
        why = f'<p role="alert">{escape("; ".join(sentences))}</p>'
    return _page(FORM.format(why=why, invite=escape(invite), email=escape(email)), refusal.status if refusal else 200)


def _page(body: str, status: int) -> Response:
    return HTMLResponse(f"{HEAD}<main>{body}</main>", status, HEADERS)
