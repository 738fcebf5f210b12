/** What was found, the newest first, with the words that were looked for. */

import { h } from "../dom.js";
import { go } from "../router.js";
import { full, roomName, said, t } from "../words.js";
import { viewHead } from "./head.js";

export function search(hall, query) {
  const text = query.get("q") ?? "";
  const room = query.get("room");
  const list = h("ol", { class: "found" });
  const state = h("p", { class: "dim", role: "status" });
  const more = h("button", { type: "button", hidden: true, onclick: () => look() }, t("searchOlder"));
  let before = null;
  let isClosed = false;

  /** Read until something is found or there is no more. */
  async function look() {
    more.hidden = true;
    state.textContent = t("searching");
    try {
      for (let found = []; !found.length && !isClosed; ) {
        const asked = { q: text, limit: 30, ...(room ? { room } : {}), ...(before ? { before } : {}) };
        const told = await hall.api.get(`/search?${new URLSearchParams(asked)}`);
        found = told.messages;
        before = told.before;
        list.append(...found.map((message) => row(message)));
        if (!before) break;
      }
    } catch (error) {
      state.textContent = said(error.message);
      return;
    }
    more.hidden = !before;
    state.textContent = t("found", list.childElementCount, text);
  }

  function nameOf(id) {
    const found = hall.rooms.get(id);
    return found ? roomName(found)[0] : "";
  }

  function row(message) {
    return h(
      "li",
      null,
      h(
        "a",
        { href: `#/room/${message.roomId}/${message.id}` },
        h("span", { class: "line" }, h("strong", null, message.senderName ?? t("somebody")), h("span", { class: "dim" }, nameOf(message.roomId)),
          h("time", { class: "dim", datetime: message.createdAt }, full(message.createdAt))),
        h("span", { class: "text" }, marked(message.content, text)),
      ),
    );
  }

  const where = room ? nameOf(room) : "";
  const box = h("input", { type: "search", value: text, maxlength: 100, autocomplete: "off", "aria-label": where ? t("searchHere") : t("searchEverywhere") });
  const ask = (event) => {
    event.preventDefault();
    if (box.value.trim()) go(`/search?${new URLSearchParams({ q: box.value.trim(), ...(room ? { room } : {}) })}`);
  };
  const form = h("form", { class: "ask", onsubmit: ask }, box, h("button", { class: "main" }, t("search")));
  if (text) look();
  const sheet = h("div", { class: "sheet" }, form, state, list, more);
  return {
    element: h("main", { class: "page", id: "main", tabindex: "-1" }, viewHead(where ? t("searchIn", where) : t("searchEverywhere"), hall.rooms.get(room)), sheet),
    shown: () => text || box.focus(),
    close: () => (isClosed = true),
  };
}

/** Return a text with what was looked for marked in it, and not too much before it. */
function marked(content, text) {
  const parts = [];
  const small = content.toLowerCase();
  const wanted = text.toLowerCase();
  const first = small.indexOf(wanted);
  let at = first > 120 ? first - 80 : 0;
  if (at) parts.push("…");
  for (let next; (next = small.indexOf(wanted, at)) >= 0 && parts.length < 40; at = next + wanted.length)
    parts.push(content.slice(at, next), h("mark", null, content.slice(next, next + wanted.length)));
  parts.push(content.slice(at, at + 300));
  return parts;
}
