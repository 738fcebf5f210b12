"""The checks of the gateway, each shown a gateway with a defect that it must catch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.faults import mutants
from tests.faults.changes import drop, replace
from tests.faults.mutants import Mutant
from tests.faults.oracle import Figure
from tests.hall.gateway import flow_checks, web_table
from tests.hall.gateway.halls import OPEN, Hall, running

Check = Callable[[Hall], list[str]]
CONFIG = {
    **OPEN,
    "hosts": ["listed.example"],
    "origins": [web_table.LISTED],
    "limits": {
        "logins": {"count": 20, "seconds": 3600},
        "wrong_passwords": {"count": 4, "seconds": 3600},
        "queued_bytes": 65_536,
    },
}


def flow(check: Callable[[Hall], Awaitable[list[str]]]) -> Check:
    async def within(hall: Hall) -> list[str]:
        async with asyncio.timeout(60):
            return await check(hall)

    return lambda hall: asyncio.run(within(hall))


CHECKS: dict[str, Check] = {
    "tokens": lambda hall: web_table.wrong_tokens(hall, hall.person()),
    "admission": web_table.wrong_hosts_and_origins,
    "cross-site": lambda hall: web_table.wrong_cross_site(hall, hall.person()),
    "rates": lambda hall: web_table.wrong_rates(hall, 20),
    "guesses": lambda hall: web_table.wrong_guesses(hall, 4),
    "listeners": web_table.wrong_listeners,
    "order": flow(flow_checks.wrong_order),
    "turns": flow(flow_checks.wrong_turns),
    "away": flow(flow_checks.wrong_when_the_topic_is_away),
    "redelivery": flow(flow_checks.wrong_redelivery),
    "leaving": flow(flow_checks.wrong_after_leaving),
    "session": flow(flow_checks.wrong_after_the_end_of_a_session),
    "invitations": flow_checks.wrong_invitations,
    "members": flow_checks.wrong_for_members,
    "removal": flow(flow_checks.wrong_removals),
    "poller": flow(flow_checks.wrong_poller),
}

LISTENER = "tests/hall/gateway/test_listener.py"
TOKENS, ADMISSION = "kingdom.hall.gateway.tokens:Tokens", "kingdom.hall.gateway.admission:Admission"
SOCKETS, MEMBERSHIP = "kingdom.hall.gateway.sockets:Sockets", "kingdom.hall.gateway.membership:Membership"
MUTANTS = [
    Mutant(
        "everybody sees what the kingdom does",
        "kingdom.hall.gateway.store:may_see_kingdom",
        replace("is_member(db, A, user)", "True"),
        "members",
    ),
    Mutant(
        "everybody gives orders",
        "kingdom.hall.gateway.rest:Rest.give_order",
        replace("await self._store.read(A)", "None"),
        "members",
    ),
    # 23: what other pages and forgers try
    Mutant(
        "signatures are not checked",
        TOKENS,
        replace('{"require": A, "verify_exp": B, "verify_iat": C}', '{"verify_signature": False}'),
        "tokens",
    ),
    Mutant("the end of a token is not checked", TOKENS, replace("self._clock() < caller.until", "True"), "tokens"),
    Mutant("any algorithm will do", TOKENS, replace("[ALGORITHM]", '["HS256", "HS384", "HS512"]'), "tokens"),
    Mutant(
        "the Host is not checked",
        ADMISSION,
        replace("_host_name(A) not in self._hosts", "False"),
        "admission",
        quick=True,
    ),
    Mutant("the Origin is not checked", ADMISSION, replace("not self._admits(A, B, C)", "False"), "admission"),
    Mutant(
        "the Origin null passes",
        ADMISSION,
        replace('"*" in self._origins or A', '"*" in self._origins or A or origin == "null"'),
        "admission",
    ),
    Mutant("a preflight is answered to anybody", ADMISSION, drop("self._check"), "cross-site"),
    Mutant("nobody counts", "kingdom.hall.gateway.rest:Rest.login", drop("self.limit"), "rates"),
    Mutant(
        "wrong passwords of one account are not counted",
        "kingdom.hall.gateway.rest:Rest._verified",
        drop("self._guesses.note_wrong"),
        "guesses",
    ),
    # 24: listeners
    Mutant(
        "it listens on every address",
        "kingdom.hall.gateway.frames:_bound",
        replace("bound.bind((host, port))", "bound.bind(('::' if ':' in host else '0.0.0.0', port))"),
        "listeners",
    ),
    # 27: messages
    Mutant(
        "accepted before it is in the topic",
        SOCKETS,
        replace("Settled(answer, A, outcome)", "Settled(answer, A, Outcome.STORED)"),
        "away",
    ),
    Mutant(
        "who is alone is accepted whatever became of the message",
        f"{SOCKETS}._settle",
        replace("settled.outcome is Outcome.STORED", "True"),
        "away",
    ),
    Mutant(
        "messages overtake each other",
        f"{SOCKETS}._append",
        replace(
            "self._producer.append(MESSAGES, A, B, done)",
            "self._loop.call_later(0.2 * (id(event) % 7), self._producer.append, MESSAGES, A, B, done)",
        ),
        "order",
    ),
    Mutant(
        "a message overtakes one whose sender is looked up",
        "kingdom.hall.gateway.frames:FrameProtocol._is_taken",
        replace("not self.is_idle or A or B", "False"),
        "turns",
    ),
    Mutant(
        "what is published again is told again",
        "kingdom.hall.gateway.delivery:Delivery._deliver",
        replace("message.message_id <= A", "False"),
        "redelivery",
    ),
    Mutant("leaving a room ends nothing", "kingdom.hall.gateway.rooms:Rooms.left", drop("self._remove"), "leaving"),
    Mutant("membership is remembered after its end", f"{MEMBERSHIP}.ends", drop("A.pop"), "leaving"),
    Mutant(
        "ended sessions go on",
        "kingdom.hall.gateway.rest:Rest.caller",
        replace("A or not await self._sessions.is_good(caller)", "A"),
        "session",
    ),
    Mutant(
        "ended sessions keep their sockets",
        "kingdom.hall.gateway.app:Application._hear",
        replace("self._sockets.disconnect_ended()", "asyncio.sleep(0)"),
        "session",
    ),
    Mutant(
        "any word is an invitation",
        "kingdom.hall.gateway.store:_given_to_newcomer",
        replace("accounts.take_invite(A, B, C)", "accounts.Invitation(accounts.OWNER)"),
        "invitations",
    ),
    Mutant(
        "who is in a room may remove anything there",
        "kingdom.hall.gateway.store:may_remove",
        replace('A["sender_id"] == user', "True"),
        "removal",
    ),
    Mutant("nobody is cut", "kingdom.hall.gateway.clients:Clients.send_to_room", drop("self._cut"), "poller"),
    # 35: timers
    Mutant(
        "the wait for a request goes on after the upgrade",
        "kingdom.hall.gateway.frames:HttpProtocol._wait_for_request",
        replace("self.transport.get_protocol() is self", "True"),
        f"{LISTENER}::test_a_web_socket_outlives_the_wait_for_a_request_idle_and_busy",
        quick=True,
    ),
    Mutant(
        "a request is waited for without end",
        "kingdom.hall.gateway.frames:HttpProtocol._wait_for_request",
        replace("self.loop.call_later(A, B)", "self.loop.call_later(3600, B)"),
        f"{LISTENER}::test_a_request_that_does_not_come_whole_ends_its_connection",
    ),
    Mutant(
        "every end counts as meant",
        "kingdom.hall.gateway.frames:FrameProtocol._was_meant_to_end",
        replace("A or self._is_cut or B", "True"),
        f"{LISTENER}::test_only_an_end_that_neither_side_meant_is_unexpected",
    ),
]
KNOWN = {mutant.name: mutant for mutant in MUTANTS}

_caught: list[bool] = []


def found_by(name: str, tree: Path) -> list[str]:
    """What a check, or a test of its own, finds wrong with the program of a tree."""
    if name not in CHECKS:
        return mutants.failing(tree, name)
    try:
        with running("gateway", config=CONFIG, tree=tree) as hall:
            return CHECKS[name](hall)
    except (AssertionError, TimeoutError, OSError) as seen:
        return [f"{type(seen).__name__}: {seen}"]


@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_seeded_defect_is_caught(name: str) -> None:
    check = KNOWN[name].caught_by
    _caught.append(mutants.is_caught(KNOWN[name], lambda tree, _: found_by(check, tree)))
    assert _caught[-1], f"{check} does not see that {name}"


def test_the_score(figure: Figure) -> None:
    figure(f"gateway mutants caught: {sum(_caught)} of {len(_caught)}")
