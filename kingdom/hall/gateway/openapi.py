"""What /openapi.json says. The tests call every operation with inputs made from it, and hold the answers against it."""

from __future__ import annotations

from typing import Any

from kingdom import __version__
from kingdom.hall.database import own_rooms
from kingdom.hall.gateway import inputs
from kingdom.hall.gateway.orders import ACTIONS

Json = dict[str, Any]
UUID: Json = {"type": "string", "format": "uuid", "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"}
CURSOR: Json = {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"}
MOMENT: Json = {"type": "string", "format": "date-time", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$"}
EMAIL: Json = {
    "type": "string",
    "maxLength": 254,
    "pattern": r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+$",
}
NO_NUL = r"^[^\u0000]*$"


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(needed: Json, optional: Json | None = None) -> Json:
    return {"type": "object", "required": list(needed), "properties": {**needed, **(optional or {})}}


def _text(least: int, most: int) -> Json:
    return {"type": "string", "minLength": least, "maxLength": most, "pattern": NO_NUL}


SUCCESS: Json = {**_object({"success": {"const": True}}), "additionalProperties": False}
REFUSAL = _object({"message": {"type": "string"}, "error": {"type": "string"}, "statusCode": {"type": "integer"}})
ERRORS: Json = {"type": "array", "items": _object({"path": {"type": "string"}, "message": {"type": "string"}})}
INVALID = {**REFUSAL, "properties": {**REFUSAL["properties"], "errors": ERRORS}}
STATUS = _object({"status": {"enum": ["up", "down"]}})
PARTS = {"type": "object", "additionalProperties": STATUS}
HEALTH: Json = {
    **_object({"status": {"enum": ["ok", "error"]}, "info": PARTS, "error": PARTS, "details": PARTS}),
    "additionalProperties": False,
}
ROOM = _object(
    {
        "id": UUID,
        "name": {"type": "string"},
        "createdAt": MOMENT,
        "lastMessageId": _or_null(CURSOR),
        "lastMessageAt": _or_null(MOMENT),
    }
)
UNREAD: Json = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 1000}, {"const": "1000+"}]}
KIND = _or_null({"enum": [own_rooms.THRONE, own_rooms.TASK]})
"""What a room of the kingdom is; null for people's."""
LISTED_ROOM = _object({**ROOM["properties"], "kind": KIND, "unread": UNREAD})
MEMBER = _object({"roomId": UUID, "userId": UUID, "joinedAt": MOMENT, "lastReadMessageId": _or_null(CURSOR)})
NAME = _or_null({"type": "string"})
MEMBER_ROLE: Json = {"enum": ["owner", "member", "kingdom"]}
NAMED_MEMBER = _object(
    {**MEMBER["properties"], "name": NAME, "role": MEMBER_ROLE},
    {"label": {"type": "string"}, "banned": {"const": True}},
)
CHOICES: Json = {"type": "array", "items": {"type": "string"}}
ABOUT = _object({"taskId": {"type": "string"}}, {"code": {"type": "string"}, "choices": CHOICES})
MESSAGE = _object(
    {
        "id": CURSOR,
        "roomId": UUID,
        "senderId": UUID,
        "clientMsgId": UUID,
        "type": {"enum": ["TEXT", "IMAGE", "SYSTEM"]},
        "content": {"type": "string"},
        "createdAt": MOMENT,
    },
    {"senderName": {"type": "string"}, "removes": CURSOR, "removed": {"const": True}, "about": ABOUT},
)

ACCOUNT = _object({"id": UUID, "email": {"type": "string"}, "name": NAME, "role": {"enum": ["owner", "member"]}})
SESSION = _object(
    {"id": UUID, "agent": {"type": "string"}, "begunAt": MOMENT, "expiresAt": MOMENT, "current": {"type": "boolean"}}
)

SECONDS: Json = {"type": "number", "minimum": 0}
COUNT: Json = {"type": "integer", "minimum": 0}
TASK = {"taskId": {"type": "string"}, "general": NAME}
ASKING = _object(
    {**TASK, "about": NAME, "question": {"type": "string"}, "choices": CHOICES, "seconds": SECONDS}, {"roomId": UUID}
)
SAYS = _object({"code": {"type": "string"}, "values": {"type": "object"}})
FAILED = _object(
    {"what": {"type": "string"}, "why": {"type": "string"}, "at": MOMENT},
    {"taskId": {"type": "string"}, "requeues": {"type": "string"}, "says": SAYS},
)
RUNNING = _object(
    {
        **TASK,
        "type": NAME,
        "repo": NAME,
        "attempt": {"type": "integer"},
        "hasSoldier": {"type": "boolean"},
        "seconds": _or_null(SECONDS),
    },
    {"roomId": UUID},
)
WAITING = _object(
    {**{name: {"type": "string"} for name in ("id", "kind", "what", "why")}, "seconds": SECONDS},
    {"roomId": UUID, "says": SAYS},
)
STATES = ["working", "idle", "degraded", "starting", "foreign", "down", "quarantined", "absent", "silent"]
ROLE = _object(
    {
        "name": {"type": "string"},
        "state": {"enum": STATES},
        "restarts": COUNT,
        "restarting": {"type": "boolean"},
        "beatSeconds": _or_null(SECONDS),
        "upSeconds": _or_null(SECONDS),
    }
)
LISTS = {"asking": ASKING, "failed": FAILED, "running": RUNNING, "waiting": WAITING, "roles": ROLE}
KINGDOM = _object(
    {
        "takenAt": MOMENT,
        "state": {"enum": ["working", "asking", "waiting", "idle", "stopped"]},
        "line": {"type": "string"},
        "says": SAYS,
        "health": {"type": "string"},
        "load": _object({name: _or_null({"type": "number"}) for name in ("cpu", "memory", "disk")}),
        **{name: {"type": "array", "items": item} for name, item in LISTS.items()},
        **dict.fromkeys(("askingMore", "runningMore", "waitingMore", "dead"), COUNT),
        "queues": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": COUNT}},
        "nextRun": _or_null(_object({"schedule": {"type": "string"}, "at": {"type": "string"}})),
    }
)

NAME_OF_FILE: Json = {"type": "string", "pattern": "^[A-Za-z0-9_:@+-][A-Za-z0-9._:@+-]{0,199}$"}
ORDER = _object(
    {
        "orderId": {"type": "string"},
        **dict.fromkeys(("action", "target", "outcome", "code"), NAME),
        "says": _or_null(SAYS),
    }
)

_SAYS = {
    "400": "What was sent does not fit",
    "401": "No token, or none that is good",
    "403": "Not allowed",
    "404": "There is no such room, session or message",
    "409": "It is so already",
    "413": "The body is too large",
    "429": "Too many requests; Retry-After says when to come back",
    "500": "The service failed",
    "503": "A part of the service is away; try again",
}


def _response(says: str, schema: Json) -> Json:
    return {"description": says, "content": {"application/json": {"schema": schema}}}


def _operation(
    name: str, status: str, result: Json | None, refusals: str, body: Json | None = None, needs_token: bool = True
) -> Json:
    done: Json = {"description": "Done"} if result is None else _response("Done", result)
    operation: Json = {"operationId": name, "responses": {status: done}}
    for code in (*refusals.split(), *(("401",) if needs_token else ()), "403", "429", "500", "503"):
        operation["responses"].setdefault(code, _response(_SAYS[code], INVALID if code == "400" else REFUSAL))
    if body is not None:
        operation["requestBody"] = {
            "required": bool(body.get("required")),
            "content": {"application/json": {"schema": body}},
        }
    if needs_token:
        operation["security"] = [{"token": []}]
    return operation


def _parameter(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema}


ID_IN_PATH = [{"name": "id", "in": "path", "required": True, "schema": UUID}]
PAGE = [
    _parameter("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 50}),
    _parameter("before", CURSOR),
    _parameter("after", CURSOR),
]
SEARCH: list[Json] = [
    {"name": "q", "in": "query", "required": True, "schema": _text(1, inputs.LONGEST_QUERY)},
    _parameter("room", UUID),
    PAGE[1],
    PAGE[0],
]
FOUND = _object({"messages": {"type": "array", "items": MESSAGE}, "before": _or_null(CURSOR)})
INVITE = _or_null(_text(*inputs.CODE))
REGISTRATION = _object({"email": EMAIL, "password": _text(*inputs.PASSWORD)}, {"invite": INVITE})
CREDENTIALS = _object({"email": _text(*inputs.SPELT_EMAIL), "password": _text(*inputs.SPELT_PASSWORD)})
ROOM_NAME: Json = {**_text(*inputs.ROOM_NAME), "pattern": f"^{inputs.NAME.pattern}".replace("\\Z", "$")}
CHANGED_PASSWORD = _object({"current": _text(*inputs.SPELT_PASSWORD), "new": _text(*inputs.PASSWORD)})

DESCRIPTION: Json = {
    "openapi": "3.1.0",
    "info": {"title": "Kingdom: the hall", "version": __version__},
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}}},
    "paths": {
        "/auth/register": {
            "post": _operation(
                "register", "201", _object({"id": UUID, "email": EMAIL}), "400 409 413", REGISTRATION, False
            )
        },
        "/auth/login": {
            "post": _operation(
                "login", "200", _object({"accessToken": {"type": "string"}}), "400 401 413", CREDENTIALS, False
            )
        },
        "/auth/password": {
            "post": {
                **_operation("changePassword", "204", None, "400 401 413", CHANGED_PASSWORD),
                "description": "Replaces one's own password, and ends all sessions but this one.",
            },
        },
        "/auth/logout": {"post": _operation("logout", "201", SUCCESS, "404")},
        "/auth/me": {"get": _operation("me", "200", ACCOUNT, "")},
        "/auth/sessions": {"get": _operation("sessions", "200", {"type": "array", "items": SESSION}, "")},
        "/auth/sessions/{id}/end": {
            "parameters": ID_IN_PATH,
            "post": _operation("endSession", "201", SUCCESS, "400 404"),
        },
        "/rooms": {
            "get": _operation("rooms", "200", {"type": "array", "items": LISTED_ROOM}, ""),
            "post": _operation("addRoom", "201", ROOM, "400 413", _object({"name": ROOM_NAME})),
        },
        "/rooms/{id}/join": {
            "parameters": ID_IN_PATH,
            "post": {
                **_operation("join", "201", MEMBER, "400 404 409 413", _object({}, {"invite": INVITE})),
                "description": "The kingdom's own rooms are joined by owners, or with an invitation.",
            },
        },
        "/rooms/{id}/leave": {
            "parameters": ID_IN_PATH,
            "post": _operation("leave", "201", _object({"roomId": UUID, "userId": UUID}), "400 404"),
        },
        "/rooms/{id}/members": {
            "parameters": ID_IN_PATH,
            "get": _operation("members", "200", {"type": "array", "items": NAMED_MEMBER}, "400"),
        },
        "/rooms/{id}/messages": {
            "parameters": ID_IN_PATH,
            "get": {
                **_operation("messages", "200", {"type": "array", "items": MESSAGE}, "400"),
                "parameters": PAGE,
                "description": "From the oldest to the newest. Without a cursor the newest; `before` the ones just "
                "before it; `after` the next ones; both: just before `before`, above `after`. The header History-Cut "
                "says that old messages behind `after` were deleted, and names the last of them.",
            },
        },
        "/rooms/{id}/messages/{message}/remove": {
            "parameters": [*ID_IN_PATH, {"name": "message", "in": "path", "required": True, "schema": CURSOR}],
            "post": {
                **_operation("removeMessage", "202", _object({"commandId": UUID}), "400 404"),
                "description": "For its sender, and for owners. The worker takes its content from the history, and "
                "adds an item with an id of its own that tells everybody so: it names the message under `removes`.",
            },
        },
        "/rooms/{id}/read": {
            "parameters": ID_IN_PATH,
            "post": _operation("markRead", "201", SUCCESS, "400 413", _object({"lastReadMessageId": CURSOR})),
        },
        "/search": {
            "get": {
                **_operation("search", "200", FOUND, "400"),
                "parameters": SEARCH,
                "description": "Messages of one's rooms that hold `q`, also inside a word, the newest first. A search "
                "reads so many messages at once: it goes on with `before`, which is null at the oldest.",
            },
        },
        "/kingdom": {
            "get": {
                **_operation("kingdom", "200", KINGDOM, ""),
                "description": "What the kingdom does now, at most a second old, for owners and people of the throne "
                "room: `line` in a sentence, with the reason when nothing runs; the longest waiting and the newest of "
                "what asks, failed, runs and waits, with the room of its task if it has one, and how many more.",
            }
        },
        "/kingdom/orders": {
            "post": {
                **_operation(
                    "giveOrder",
                    "202",
                    _object({"orderId": {"type": "string"}}),
                    "400 413",
                    _object({"action": {"enum": list(ACTIONS)}, "target": NAME_OF_FILE}),
                ),
                "description": "Of an owner to the king, about what has this id: retry or cancel a task, put back "
                "(requeue) an event, a message or what lies in dead/, discard an event.",
            }
        },
        "/kingdom/orders/{order}": {
            "parameters": [{"name": "order", "in": "path", "required": True, "schema": NAME_OF_FILE}],
            "get": {
                **_operation("order", "200", ORDER, "404"),
                "description": "What came of an order: `outcome` in words and `code` (done or refused), null until the "
                "king has come to it; `says` has as data why it was refused. For owners.",
            },
        },
        "/kingdom/roles/{role}/restart": {
            "parameters": [{"name": "role", "in": "path", "required": True, "schema": NAME_OF_FILE}],
            "post": {
                **_operation("restartRole", "202", SUCCESS, "404 409"),
                "description": "Of an owner: the process that plays this role ends and is started again, within "
                "seconds, as its `restarting` and `upSeconds` tell. 409 for a role that does not run.",
            },
        },
        "/health": {
            "get": {
                "operationId": "health",
                "responses": {
                    "200": _response("All is well; a missing worker shows in the details", HEALTH),
                    "503": _response("The database or the topics are away", HEALTH),
                    "403": _response(_SAYS["403"], REFUSAL),
                    "429": _response(_SAYS["429"], REFUSAL),
                },
            }
        },
        "/openapi.json": {
            "get": {
                "operationId": "description",
                "responses": {
                    "200": _response("This", {"type": "object"}),
                    "403": _response(_SAYS["403"], REFUSAL),
                    "429": _response(_SAYS["429"], REFUSAL),
                },
            }
        },
    },
}
