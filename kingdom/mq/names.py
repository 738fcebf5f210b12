"""What changes during a message's life, as one line of text that sorts in the order of delivery.

    0999995-1763465000123-00000042-1.s1x8f3a01-0199f2c1-5a2b-7000-802a-3c9d1e5f7a90
    rank    due           sequence fields      message id

rank = 1,000,000 - priority. due: when a waiting message is available, when a lease ends, when a dead
letter or an archived message came to rest. The fields begin with the attempts so far; then, each behind
a dot and a letter: e expiresAt · t target (digest) · s same failures in a row x digest of their reason ·
h laid in by hand · n was a dead letter and waits again · l lease id · c consumer (digest) · v length of the lease ·
r reason code · a when it became a dead letter · q quarantined · b when it was published and k the end of its key, of a
message from another system (w: the whole key, where it is of another form). Free text never stands here, so that a name
can always name a file.

Nobody else knows this grammar: others use the functions, and in hot loops the slices. What is called for every message
writes numbers of a fixed width with %: that takes half the time of f"{number:013d}".
"""

from __future__ import annotations

import re
import secrets
from hashlib import blake2s
from random import Random

HIGHEST = 1_000_000
SEQUENCES = 100_000_000
LATEST = 10**13 - 1
"""The last moment, in ms since the epoch, that fits into a name."""
NEVER = 1 << 62
"""Later than all of them."""

_UP_TO_DUE, _SEQUENCE_PART, _ID_PART = slice(8), slice(21, 31), slice(-37, None)
_RANK, _FIELDS = slice(7), slice(31, -37)
DUE = slice(8, 21)
SEQUENCE = slice(22, 30)
MESSAGE_ID = slice(-36, None)
"""Of a name, and of a message key."""
KIND = -22
"""The version digit of the message id: REMEMBERED or PLAIN_KIND."""
CREATED = slice(-36, -23)
"""The time of publishing, as message ids begin with it."""

PLAIN_KIND = "7"
REMEMBERED = "8"
"""The version digit of ids whose body holds a request id or deduplication key."""
FOREIGN_KIND = "5"
"""The version digit of ids that stand for the key of a message from another system; see `foreign_id`."""

ID_BYTES = 16
NO_ID = bytes(ID_BYTES)

ATTEMPTS = ""
EXPIRES, TARGET, SAME_FAILURES, BY_HAND = "e", "t", "s", "h"
LEASE, CONSUMER, LENGTH, REASON, DEAD_SINCE, QUARANTINED = "l", "c", "v", "r", "a", "q"
REVIVED = "n"
BORN, KEY_END, WHOLE_KEY = "b", "k", "w"
STAY_FOR_EVER = (TARGET, BY_HAND, BORN, KEY_END, WHOLE_KEY)

PLAIN_LENGTH = 69
"""As long is the name of a fresh message that says nothing but its payload, and perhaps its priority."""

_HEAD = r"[0-9]{7}-[0-9]{13}-[0-9]{8}"
_GUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ID = re.compile(rf"{_GUID}\Z")
_WHOLE = re.compile(rf"{_HEAD}-\d{{1,6}}(?:\.[a-z][A-Za-z0-9_]*)*-{_GUID}\Z", re.ASCII)
ANY_NAME = rf"{_HEAD}-[0-9][\w.]*-[0-9a-f-]{{36}}"
"""A pattern for long listings: it is quick, and as exact as a folder of our own needs."""
WAITING_NAME = rf"{_HEAD}-[0-9]+(?:\.[^\Wlr]\w*)*-[0-9a-f-]{{36}}"
"""What has a lease or a reason in its name does not wait; in an inbox a person has laid it."""


def plain(due: int, sequence: int, message_id: str) -> str:
    """Return the name of a fresh message that says nothing but its payload."""
    return "1000000-%013d-%08d-0-%s" % (due, sequence, message_id)


def compose(priority: int, due: int, sequence: int, fields: dict[str, str], message_id: str) -> str:
    """Return the name of a fresh message."""
    return f"{HIGHEST - priority:07d}-{due:013d}-{sequence:08d}-{_join(fields)}-{message_id}"


def first_fields(expires: int, target: str, by_hand: bool = False) -> dict[str, str]:
    """Return the fields of a fresh message. Zero and an empty text mean that there is none."""
    fields = {ATTEMPTS: "0"}
    if expires:
        fields[EXPIRES] = str(expires)
    if target:
        fields[TARGET] = digest(target)
    if by_hand:
        fields[BY_HAND] = ""
    return fields


def leased(name: str, until: int, length: int, lease_id: str, consumer: str, another_attempt: bool) -> tuple[str, int]:
    """Return the name of a message that is handed out for `length` ms, and how many attempts that makes."""
    fields, attempt, rest = name[_FIELDS], int(another_attempt), ""
    if fields != "0":
        attempts, dot, rest = fields.partition(".")
        attempt, rest = attempt + int(attempts), dot + rest
    before = "%s%013d%s%d" % (name[_UP_TO_DUE], until, name[_SEQUENCE_PART], attempt)
    return f"{before}{rest}.l{lease_id}.c{consumer}.v{length}{name[_ID_PART]}", attempt


def changed(name: str, due: int, fields: dict[str, str]) -> str:
    """Return the same message's name, due at another time, with other fields."""
    return f"{name[_UP_TO_DUE]}{due:013d}{name[_SEQUENCE_PART]}{_join(fields)}{name[_ID_PART]}"


def extended(name: str, until: int, length: int) -> str:
    """Return the name of a leased message whose lease lasts `length` ms from now on."""
    return changed(name, until, fields_of(name) | {LENGTH: str(length)})


def without_lease(name: str) -> dict[str, str]:
    """Return the fields of a leased message without those of its lease."""
    fields = fields_of(name)
    fields.pop(LEASE, None)
    fields.pop(CONSUMER, None)
    fields.pop(LENGTH, None)
    return fields


def archived(name: str, now: int) -> str:
    """Return the name in the archive: since when, and how often it was tried."""
    return changed(name, now, without_lease(name))


def revived(name: str, due: int, sequence: int) -> str:
    """Return the name under which a dead letter waits again: its attempts are forgotten."""
    kept = {letter: text for letter, text in fields_of(name).items() if letter in STAY_FOR_EVER}
    return compose(priority_of(name), due, sequence, {ATTEMPTS: "0", REVIVED: "", **kept}, name[MESSAGE_ID])


def count_same_failures(before: str, reason: str) -> tuple[int, str]:
    """Return how often in a row this reason was given, and the text of the field that remembers it."""
    count, _, same = before.partition("x")
    reason_digest = digest(reason)
    failures = int(count) + 1 if same == reason_digest else 1
    return failures, f"{failures}x{reason_digest}"


def _join(fields: dict[str, str]) -> str:
    return ".".join(letter + text for letter, text in fields.items())


def is_id(text: str) -> bool:
    """Return whether the text is a message id."""
    return _ID.match(text) is not None


def is_name(text: str) -> bool:
    """Return whether the text is a whole and exact name."""
    return _WHOLE.match(text) is not None


def priority_of(name: str) -> int:
    return HIGHEST - int(name[_RANK])


def due_of(name: str) -> int:
    return int(name[DUE])


def own_delay(name: str) -> int:
    """Return how long a message that has not failed yet was to wait after it was published, in ms."""
    return 0 if f".{REVIVED}" in name else max(0, due_of(name) - created_of(name))


def attempt_of(name: str) -> int:
    return int(name[_FIELDS].partition(".")[0])


def fields_of(name: str) -> dict[str, str]:
    """Return the fields by letter; the attempts stand under the empty letter."""
    attempt, *rest = name[_FIELDS].split(".")
    return {ATTEMPTS: attempt, **{field[0]: field[1:] for field in rest}}


def expires_of(name: str) -> int:
    """Return when the message expires, 0 when it does not."""
    return int(fields_of(name)[EXPIRES]) if ".e" in name else 0


def target_of(name: str) -> str:
    """Return the digest of the only consumer that may lease the message, or an empty text."""
    return fields_of(name)[TARGET] if ".t" in name else ""


def is_dead_letter(name: str) -> bool:
    """Return whether the message is a dead letter, also one out on a lease."""
    return ".r" in name


def reason_of(name: str) -> str:
    """Return the reason code of a dead letter; that of one which a person has put there is not known."""
    return fields_of(name).get(REASON, "HANDLER_ERROR")


def is_quarantined(name: str) -> bool:
    return ".q" in name


def is_by_hand(name: str) -> bool:
    """Return whether a person laid the message in."""
    return ".h" in name


def created_of(name: str) -> int:
    """Return when the message was published: the id begins with it."""
    if name[KIND] == FOREIGN_KIND and ".b" in name:
        return int(fields_of(name)[BORN])
    return int(name[-36:-28] + name[-27:-23], 16)


# Names of delayed messages, turned so that they sort by due time.

TURNED_DUE = slice(13)


def due_first(name: str) -> str:
    """Turn a name so that it sorts by due time. `rank_first` turns it back."""
    return f"{name[8:22]}{name[_UP_TO_DUE]}{name[22:]}"


def rank_first(turned: str) -> str:
    return f"{turned[14:22]}{turned[:14]}{turned[22:]}"


def key(queue: str, message_id: str) -> str:
    return f"msg:{queue}:{message_id}"


def key_of(queue: str, name: str) -> str:
    if name[KIND] == FOREIGN_KIND and (".k" in name or ".w" in name):
        fields = fields_of(name)
        return f"msg:{queue}:{_plain(fields[KEY_END])}" if KEY_END in fields else _plain(fields[WHOLE_KEY])
    return f"msg:{queue}:{name[MESSAGE_ID]}"


def id_of_key(text: str) -> str:
    """Return the message id by which the message of a key is known."""
    tail = text[MESSAGE_ID]
    return tail if is_ours(tail) else foreign_id(text)


def is_ours(message_id: str) -> bool:
    """Return whether this is an id as we give them."""
    return is_id(message_id) and message_id[KIND] in (PLAIN_KIND, REMEMBERED)


def is_foreign(name: str) -> bool:
    """Return whether another system published the message, so that its body is in the layout of that."""
    return name[KIND] == FOREIGN_KIND and ".b" in name


def foreign_id(text: str) -> str:
    """Return the id that stands for the key of a message from another system."""
    known = blake2s(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{known[:8]}-{known[8:12]}-{FOREIGN_KIND}{known[13:16]}-{known[16:20]}-{known[20:]}"


def foreign_fields(queue: str, text: str, born: int) -> dict[str, str]:
    """Return the fields that keep the key and the time of a message from another system."""
    before = f"msg:{queue}:"
    if text.startswith(before):
        return {BORN: str(born), KEY_END: _armoured(text.removeprefix(before))}
    return {BORN: str(born), WHOLE_KEY: _armoured(text)}


def carried(name: str, queue: str) -> str:
    """Return the name of the same message in another queue."""
    if not is_foreign(name):
        return name
    fields = fields_of(name)
    fields[KEY_END] = fields.pop(WHOLE_KEY, "") or fields.get(KEY_END, "")
    new = f"{name[:31]}{_join(fields)}{name[_ID_PART]}"
    return f"{new[:-36]}{foreign_id(key_of(queue, new))}"


def _armoured(text: str) -> str:
    """Write any text in letters, digits and underscores. `_plain` reads it."""
    return "".join(map(_letter, text))


def _letter(character: str) -> str:
    if character == "-":
        return "_"
    if character.isascii() and character.isalnum() and character != "z":
        return character
    return "".join(f"z{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def _plain(armoured: str) -> str:
    parts = armoured.replace("_", "-").split("z")
    data = parts[0].encode() + b"".join(bytes.fromhex(part[:2]) + part[2:].encode() for part in parts[1:])
    return data.decode("utf-8", "surrogatepass")


def queue_of_key(text: str) -> str:
    """Return the queue's name in a message key; an empty text when it is no key."""
    return text[4:].rpartition(":")[0] if text.startswith("msg:") else ""


def key_range(queue: str) -> tuple[str, str]:
    """Return the first key that a queue's messages can have, and the first one behind them."""
    return f"msg:{queue}:", f"msg:{queue};"


class Ids:
    """Message ids that sort by time of publishing (UUID version 7), lease ids, and the sequence that keeps order."""

    def __init__(self, seed: int | None = None) -> None:
        self.sequence = 0
        self._bits = Random(secrets.randbits(128) if seed is None else seed).getrandbits
        self._now = -1
        self._before = self._behind = ""

    def next_sequence(self) -> int:
        self.sequence = (self.sequence + 1) % SEQUENCES
        return self.sequence

    def message_id(self, now: int, sequence: int, kind: str = PLAIN_KIND) -> str:
        """Return a new id. Ids of one millisecond differ in the sequence alone."""
        if now != self._now:
            self._now = now
            self._before = f"{id_prefix(now)}-"
            self._behind = f"-{self._bits(48):012x}"
        tie = sequence & 0x3FFFFFF
        return "%s%s%03x-%04x%s" % (self._before, kind, tie >> 14, 0x8000 | tie & 0x3FFF, self._behind)

    def lease_id(self) -> str:
        return "%016x" % self._bits(64)


def id_prefix(now: int) -> str:
    """Return what the ids of messages published at `now` begin with; see CREATED."""
    when = f"{now:012x}"
    return f"{when[:8]}-{when[8:]}"


def tie_of(message_id: str) -> int:
    """Return the lower digits of the sequence under which the message was published."""
    return int(message_id[15:18], 16) << 14 | int(message_id[19:23], 16) & 0x3FFF


def id_as_bytes(message_id: str) -> bytes:
    """Return an id in little memory; zeros for an empty one."""
    return bytes.fromhex(message_id.replace("-", "")) if message_id else NO_ID


def id_from_bytes(data: bytes) -> str:
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}" if data != NO_ID else ""


def digest(text: str) -> str:
    """Return a short fingerprint of a text that is too free to stand in a name."""
    return blake2s(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
