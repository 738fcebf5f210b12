"""What foreign pages, and texts that people write, may try with the page of the hall."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlsplit

import requests
from playwright.sync_api import Error, expect

from tests.hall.gateway.halls import SECONDS, Hall
from tests.waiting import wait_until
from tests.web.screens import Screens, apart, write

MARKUP = (
    "<img src=x onerror=\"document.title='broken'\">",
    "<script>document.title='broken'</script>",
    "<svg onload=\"document.title='broken'\"></svg>",
    "<a href=\"javascript:document.title='broken'\">click</a>",
    "javascript:document.title='broken'",
    '"><iframe srcdoc="<script>parent.document.title=\'broken\'</script>"></iframe>',
    "`<b onclick=alert(1)>code</b>`",
    "https://example.org/\"onmouseover=\"document.title='broken'",
    "```\n<style>*{display:none}</style>\n```",
    "{{constructor.constructor('document.title=1')()}}",
)
"""As names of rooms and as messages."""
DANGEROUS = "main :is(img, script, iframe, style, object, embed, form:not(.composer), [onclick], [onerror], [onload])"


def wrong_markup(hall: Hall, screens: Screens) -> list[str]:
    anna = hall.person()
    found = []
    room = str(anna.call("POST", "/rooms", json={"name": MARKUP[0]}).json()["id"])
    write(anna, room, MARKUP)
    screen = screens(anna).room(room)
    expect(screen.timeline.get_by_role("article")).to_have_count(len(MARKUP))
    shown = screen.page.locator("article .text").all_text_contents()
    plain = [text.replace("```\n", "").replace("\n```", "").replace("`", "") for text in MARKUP]
    found += [f"{wanted!r} is shown as {text!r}" for wanted, text in zip(plain, shown, strict=True) if wanted != text]
    if screen.page.get_by_role("heading", level=1).inner_text() != MARKUP[0]:
        found.append("the name of the room is not shown as it is")
    made = screen.page.locator(DANGEROUS).count()
    found += [f"{made} elements were made of texts"] if made else []
    links: list[str] = screen.page.evaluate("[...document.querySelectorAll('article a')].map((link) => link.protocol)")
    found += [f"a link to {protocol}" for protocol in links if protocol not in ("http:", "https:")]
    if "broken" in screen.page.title():
        found.append("a script ran")
    screen.page.locator("#find").fill("document")
    screen.page.locator("#find").press("Enter")
    expect(screen.page.locator(".found li").first).to_be_visible()
    made = screen.page.locator(DANGEROUS.replace("form:not(.composer)", "form:not(.ask)")).count()
    return found + ([f"{made} elements were made of what was found"] if made else [])


def wrong_pictures(hall: Hall, screens: Screens) -> list[str]:
    anna = hall.person()
    room = anna.room()
    asked: list[str] = []
    screen = screens(anna).room(room)
    screen.page.on("request", lambda request: asked.append(request.url))

    async def show() -> None:
        async with anna.socket(room) as socket:
            for address in ("https://elsewhere.example/cat.png", "javascript:alert(1)"):
                await socket.send(room, address, type="IMAGE")

    apart(show)
    expect(screen.message("javascript:alert(1)")).to_be_visible()
    links: list[str] = screen.page.evaluate("[...document.querySelectorAll('article a')].map((link) => link.href)")
    found = [] if links == ["https://elsewhere.example/cat.png"] else [f"links: {links}"]
    return found + [f"it asked for {url}" for url in asked if "elsewhere.example" in url]


INTRUSIONS = {
    "an inline script": "(() => { const s = document.createElement('script'); s.textContent = 'window.broken = 1';"
    " document.body.append(s); })()",
    "markup by a script": "document.body.insertAdjacentHTML('beforeend', '<b id=planted></b>');"
    " if (document.getElementById('planted')) window.broken = 1",
    "an inline style": "(() => { const s = document.createElement('style'); s.textContent = 'body{display:none}';"
    " document.head.append(s); if (getComputedStyle(document.body).display === 'none') window.broken = 1; })()",
    "eval": "window.setTimeout('window.broken = 1')",
    "a picture of another host": "new Promise((done) => { const i = new Image(); i.onload = () => { window.broken = 1;"
    " done(); }; i.onerror = done; i.src = 'http://localhost:PORT/pages/x.svg'; })",
    "a request to another host": "fetch('http://localhost:PORT/health', {mode: 'no-cors'}).then(() => { window.broken"
    " = 1; })",
    "a form": "(() => { const f = document.createElement('form'); f.action = '/rooms'; document.body.append(f);"
    " f.submit(); })()",
    "a base": "(() => { const b = document.createElement('base'); b.href = 'http://localhost:PORT/';"
    " document.head.append(b); if (document.baseURI.includes('localhost')) window.broken = 1; })()",
}
"""What a defect of the page might let in, as scripts: each sets `broken` if it comes through."""


HEAR = "document.addEventListener('securitypolicyviolation', () => { window.violated = 1; })"


def wrong_policy(hall: Hall, screens: Screens) -> list[str]:
    found = []
    for name, script in INTRUSIONS.items():
        screen = screens(hall.person()).open()
        expect(screen.page.get_by_role("navigation")).to_be_visible()
        url = screen.page.url
        screen.page.evaluate(HEAR)
        try:
            screen.page.evaluate(script.replace("PORT", str(urlsplit(hall.url).port)))
        except Error:
            pass  # refused with an exception, as it should be
        else:
            # Until the browser tells that it kept this out; what comes through needs no telling.
            wait_until(
                partial(screen.page.evaluate, "window.violated || window.broken"), SECONDS, "what the browser did"
            )
        screen.complaints.clear()
        if screen.page.evaluate("window.broken") or screen.page.url != url:
            found.append(f"{name} comes through")
        screen.close()
    return found


REACHES = {
    "read": "fetch('URL/rooms', {headers: {Authorization: 'Bearer TOKEN'}}).then((told) => told.status)",
    "read without asking first": "fetch('URL/health').then((told) => told.status)",
    "send a form": "fetch('URL/rooms', {method: 'POST', mode: 'no-cors', headers: {'Content-Type': 'text/plain'},"
    " body: '{\"name\":\"forged\"}'}).then(() => 'sent')",
    "open a web socket": "new Promise((done, failed) => { const s = new WebSocket('SOCKET/socket.io/?EIO=4&transport="
    "websocket'); s.onopen = () => done('open'); s.onerror = () => failed(new Error('refused')); })",
    "poll": "fetch('URL/socket.io/?EIO=4&transport=polling').then((told) => told.text())",
    "load a script": "new Promise((done, failed) => { const s = document.createElement('script'); s.onload = () =>"
    " done('loaded'); s.onerror = () => failed(new Error('refused')); s.src = 'URL/PART'; document.head.append(s); })",
    "show it in a frame": "new Promise((done) => { const f = document.createElement('iframe'); f.onload = () => {"
    " try { done(f.contentWindow.length === 0 && f.contentDocument ? 'blank' : 'frame'); } catch { done('frame'); } };"
    " f.src = 'URL/'; document.body.append(f); })",
}
"""What a page on another port of this machine tries, whose visitor is signed in here."""


def wrong_elsewhere(hall: Hall, screens: Screens, elsewhere: str) -> list[str]:
    anna = hall.person()
    screen = screens(anna)
    screen.open()
    expect(screen.page.get_by_role("navigation")).to_be_visible()
    part = requests.get(hall.url, timeout=SECONDS).text.partition('script src="')[2].partition('"')[0]
    found = []
    for name, script in REACHES.items():
        page = screen.context.new_page()
        page.goto(elsewhere)
        socket = hall.url.replace("http", "ws")
        words = {"URL": hall.url, "SOCKET": socket, "TOKEN": anna.token, "PART": part}
        for word, value in words.items():
            script = script.replace(word, value)
        try:
            told: Any = page.evaluate(script)
        except Error:
            told = None
        if name == "show it in a frame":
            frame = page.frames[-1]
            told = "framed" if frame.url.startswith(hall.url) and frame.locator("#page").count() else None
        if told and name != "send a form":
            found.append(f"{name}: {told}")
        page.close()
    rooms = anna.call("GET", "/rooms").json()
    return found + [f"a form made {room['name']}" for room in rooms]


REBOUND = "rebound.example"
"""A foreign name that the browser of the tests resolves to this machine, as an attacker's name server would."""


def wrong_rebinding(hall: Hall, screens: Screens) -> list[str]:
    """Visit the gateway under a foreign name: its page would be of one origin with what it asks for."""
    screen = screens(hall.person())
    address = f"http://{REBOUND}:{urlsplit(hall.url).port}"
    found = []
    for path in ("/", "/health", "/socket.io/?EIO=4&transport=polling"):
        answer = screen.page.goto(address + path)
        if answer is None or answer.status != 403:
            found.append(f"{path} under a foreign name gets {answer and answer.status}")
    if screen.page.locator("#page").count():
        found.append("the page is shown under a foreign name")
    screen.complaints.clear()
    return found
