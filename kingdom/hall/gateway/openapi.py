"""What /openapi.json says. The tests call every operation with inputs made from it, and hold the answers against it."""

from __future__ import annotations

from kingdom import __version__
from kingdom.hall.database import own_rooms
from kingdom.hall.gateway import inputs
from kingdom.hall.gateway.inputs import Fields, Json

UUID: Json = {"type": "string", "format": "uuid", "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"}
CURSOR = inputs.CURSOR.schema
MOMENT: Json = {"type": "string", "format": "date-time", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$"}


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(needed: Json, optional: Json | None = None) -> Json:
    return {"type": "object", "required": list(needed), "properties": {**needed, **(optional or {})}}


def _body(fields: Fields) -> Json:
    needed, optional = (
        {name: field.schema for name, field in fields.items() if field.is_needed is wanted} for wanted in (True, False)
    )
    return _object(needed, optional)


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

REGISTERED = _object({"id": UUID, "email": inputs.ADDRESS.schema})
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
    name: str, status: str, result: Json | None, refusals: str, body: Fields | None = None, needs_token: bool = True
) -> Json:
    done: Json = {"description": "Done"} if result is None else _response("Done", result)
    operation: Json = {"operationId": name, "responses": {status: done}}
    for code in (*refusals.split(), *(("401",) if needs_token else ()), "403", "429", "500", "503"):
        operation["responses"].setdefault(code, _response(_SAYS[code], INVALID if code == "400" else REFUSAL))
    if body is not None:
        operation["requestBody"] = {
            "required": any(field.is_needed for field in body.values()),
            "content": {"application/json": {"schema": _body(body)}},
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
    {"name": "q", "in": "query", "required": True, "schema": inputs.SEARCHED.schema},
    _parameter("room", UUID),
    PAGE[1],
    PAGE[0],
]
FOUND = _object({"messages": {"type": "array", "items": MESSAGE}, "before": _or_null(CURSOR)})

DESCRIPTION: Json = {
    "openapi": "3.1.0",
    "info": {"title": "Kingdom: the hall", "version": __version__},
    "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}}},
    "paths": {
        "/auth/register": {
            "post": _operation(
                "register",
                "201",
                _object({"id": UUID, "email": inputs.ADDRESS.schema}),
                "400 409 413",
                inputs.REGISTRATION,
                False,
            )
        },
        "/auth/login": {
            "post": _operation(
                "login", "200", _object({"accessToken": {"type": "string"}}), "400 401 413", inputs.CREDENTIALS, False
            )
        },
        "/auth/password": {
            "post": {
                **_operation("changePassword", "204", None, "400 401 413", inputs.CHANGED_PASSWORD),
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
            "post": _operation("addRoom", "201", ROOM, "400 413", inputs.NEW_ROOM),
        },
        "/rooms/{id}/join": {
            "parameters": ID_IN_PATH,
            "post": {
                **_operation("join", "201", MEMBER, "400 404 409 413", inputs.JOINING),
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
            "post": _operation("markRead", "201", SUCCESS, "400 413", inputs.READ_MARK),
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
                    inputs.KINGDOM_ORDER,
                ),
                "description": "Of an owner to the king, about what has this id: retry or cancel a task, put back "
                "(requeue) an event, a message or what lies in dead/, discard an event.",
            }
        },
        "/kingdom/orders/{order}": {
            "parameters": [{"name": "order", "in": "path", "required": True, "schema": inputs.FILE.schema}],
            "get": {
                **_operation("order", "200", ORDER, "404"),
                "description": "What came of an order: `outcome` in words and `code` (done or refused), null until the "
                "king has come to it; `says` has as data why it was refused. For owners.",
            },
        },
        "/kingdom/roles/{role}/restart": {
            "parameters": [{"name": "role", "in": "path", "required": True, "schema": inputs.FILE.schema}],
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
