"""The tests of the page in a browser, each shown a page or a gateway with a defect that it must catch."""

import shutil

import pytest

from tests.faults import mutants
from tests.faults.changes import Text, drop, replace
from tests.faults.mutants import Mutant
from tests.faults.oracle import Figure

PAGE = "kingdom/hall/gateway/pages"
FILES = "kingdom.hall.gateway.page_files"
FORGERY, OFFLINE = "tests/web/test_forgery.py", "tests/web/test_offline.py"
CHAT, ACCESS = "tests/web/test_chat.py", "tests/web/test_access.py"
MARKUP = f"{FORGERY}::test_markup_in_names_and_messages_is_text"
POLICY = f"{FORGERY}::test_the_policy_of_the_page_holds_against_what_gets_in"
ELSEWHERE = f"{FORGERY}::test_another_page_can_ask_read_and_frame_nothing"
TWENTY = f"{OFFLINE}::test_twenty_messages_written_offline_arrive_once_and_in_order_on_both_screens"
MISSED = f"{OFFLINE}::test_what_was_missed_is_read_however_much_it_is"
LIMITS = "tests/web/test_limits_on_the_page.py"
MUTANTS = [
    # 22: forged input
    Mutant(
        "clients may send what the kingdom sends",
        "kingdom.hall.gateway.inputs",
        replace('("TEXT", "IMAGE")', '("TEXT", "IMAGE", "SYSTEM")'),
        f"{FORGERY}::test_nobody_speaks_as_the_kingdom",
    ),
    # 23: foreign pages and markup
    Mutant(
        "messages are markup",
        f"{PAGE}/views/timeline.js",
        Text(
            'h("div", { class: "text" }, message.removed ? t("removed") : contentOf(message, choices, leadsTo)),',
            'Object.assign(h("div", { class: "text" }), { innerHTML: message.content }),',
        ),
        MARKUP,
    ),
    Mutant(
        "any address becomes a link",
        f"{PAGE}/views/text.js",
        Text('return ["http:", "https:"].includes(new URL(content).protocol);', "return Boolean(new URL(content));"),
        f"{FORGERY}::test_a_picture_is_a_link_that_is_not_loaded",
    ),
    Mutant("the page has no policy", FILES, replace('"Content-Security-Policy"', '"X-Policy"'), POLICY),
    Mutant(
        "inline styles may stand in the page",
        FILES,
        replace("\"style-src 'self'\"", "\"style-src 'self' 'unsafe-inline'\""),
        POLICY,
    ),
    Mutant("the page may ask any host", FILES, replace("\"connect-src 'self'\"", "'connect-src *'"), POLICY),
    Mutant("forms may be sent", FILES, replace("\"form-action 'none'\"", "'form-action *'"), POLICY),
    Mutant("markup may be made by scripts", FILES, replace("\"require-trusted-types-for 'script'\"", "''"), POLICY),
    Mutant("others may frame the page", FILES, replace("\"frame-ancestors 'none'\"", "'frame-ancestors *'"), ELSEWHERE),
    Mutant(
        "the Origin is not checked on the way to the page",
        "kingdom.hall.gateway.admission:Admission",
        replace("not self._admits(A, B, C)", "False"),
        ELSEWHERE,
    ),
    Mutant(
        "the Host is not checked, nor with it a rebound name",
        "kingdom.hall.gateway.admission:Admission",
        replace("_host_name(A) not in self._hosts", "False"),
        f"{FORGERY}::test_a_rebound_name_is_not_served",
    ),
    Mutant(
        "signatures of tokens are not checked on the way to the page",
        "kingdom.hall.gateway.tokens:Tokens",
        replace('{"require": A, "verify_exp": B, "verify_iat": C}', '{"verify_signature": False}'),
        "tests/web/test_entrance.py::test_a_token_that_is_over_or_forged_leads_to_the_entrance",
    ),
    # What was written and what was missed
    Mutant(
        "a message sent again gets another id",
        f"{PAGE}/outbox.js",
        Text(
            "clientMsgId: item.clientMsgId, content: item.content }", "clientMsgId: newUuid(), content: item.content }"
        ),
        TWENTY,
    ),
    Mutant(
        "what waits is sent at once, in no order",
        f"{PAGE}/outbox.js",
        Text("find((item) => TO_SEND.has(item.state))", "findLast((item) => TO_SEND.has(item.state))"),
        TWENTY,
    ),
    Mutant(
        "what waits is kept in the tab alone",
        f"{PAGE}/outbox.js",
        Text("localStorage.setItem(key, ", "void (key, "),
        f"{OFFLINE}::test_a_reload_loses_nothing_of_what_waits",
    ),
    Mutant(
        "what another tab has written is not seen",
        f"{PAGE}/outbox.js",
        Text('addEventListener("storage", this.onStorage);\n    this.#read();', "this.#read();"),
        f"{OFFLINE}::test_what_a_closed_tab_had_queued_is_sent_by_another_tab_of_its_account",
    ),
    Mutant(
        "every tab sends what waits",
        f"{PAGE}/outbox.js",
        Text("navigator.locks ? navigator.locks.request(name, work) : work()", "work()"),
        f"{OFFLINE}::test_two_tabs_of_an_account_send_each_message_once_and_show_one_state",
    ),
    Mutant(
        "drafts are everybody's",
        f"{PAGE}/drafts.js",
        Text("kingdom.draft.${user}.", "kingdom.draft."),
        f"{CHAT}::test_a_draft_outlives_the_end_of_its_session_for_its_writer_alone",
    ),
    Mutant(
        "a new member is told nothing",
        "kingdom.hall.gateway.rooms:Rooms.joined",
        drop("_tell_membership"),
        f"{CHAT}::test_a_new_membership_is_seen_at_once",
    ),
    Mutant(
        "only one page is read of what was missed",
        f"{PAGE}/hall.js",
        Text("while (!room.isLive) {\n      const", "{\n      const"),
        MISSED,
    ),
    Mutant(
        "a gap is forgotten when the next message comes",
        f"{PAGE}/room.js",
        Text(
            "      this.isLive = false;\n    }\n  }\n\n  /** Return the messages without",
            "    }\n  }\n\n  /** Return the messages without",
        ),
        MISSED,
    ),
    Mutant(
        "the time to wait is not respected",
        f"{PAGE}/outbox.js",
        Text("return Math.min(answer.retryAfterMs, 60_000);", "return 1;"),
        f"{LIMITS}::test_messages_over_the_limit_wait_as_long_as_they_are_told_and_keep_their_order",
    ),
    Mutant(
        "a cut is not told",
        f"{PAGE}/room.js",
        Text("this.cut = cut ?? this.cut;", ""),
        f"{LIMITS}::test_a_cut_history_is_told",
    ),
    Mutant(
        "a removed message stays on the screens that show it",
        f"{PAGE}/room.js",
        Text("if (message.removes) this.#blank(message.removes);", ""),
        f"{CHAT}::test_a_removed_message_is_gone_from_every_screen",
    ),
    # Everybody can use it
    Mutant(
        "Enter sends while a syllable is composed",
        f"{PAGE}/views/composer.js",
        Text("&& !event.shiftKey && !isComposing", "&& !event.shiftKey"),
        f"{ACCESS}::test_enter_sends_nothing_while_a_syllable_is_composed",
    ),
    Mutant(
        "what can be done with a message is out of reach of keys",
        f"{PAGE}/views/timeline.js",
        Text('active.setAttribute("tabindex", "0");', ""),
        f"{ACCESS}::test_keys_alone_lead_through_everything",
    ),
    Mutant(
        "a screen reader is told nothing",
        f"{PAGE}/dom.js",
        Text('told.append(h("p", null, text));', ""),
        f"{ACCESS}::test_a_screen_reader_hears_of_new_messages",
    ),
]


@pytest.mark.parametrize("mutant", mutants.chosen(MUTANTS), ids=lambda mutant: mutant.name)
def test_a_defect_of_the_page_is_caught(mutant: Mutant, figure: Figure) -> None:
    pytest.importorskip("playwright", reason="NO PLAYWRIGHT HERE: bin/setup web")
    if shutil.which("chromium") is None:
        pytest.skip("NO CHROMIUM HERE, SO THE PAGE IS NOT TRIED IN A BROWSER: apt-get install chromium")
    assert mutants.is_caught(mutant, lambda tree, near: mutants.failing(tree, mutant.caught_by))
    figure(f"page: {mutant.name}: caught")
