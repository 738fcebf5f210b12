/** The history of a room. Rows are kept by the sender's id of each message, so that nothing flickers when a message
 * that was just written comes back from the gateway. */

import { crown, h, icon, iconButton, portrait } from "../dom.js";
import { isTask } from "../own.js";
import { clock, day, full, roomName, said, t } from "../words.js";
import { removeMessage } from "./dialogs.js";
import { isWebAddress, link, text } from "./text.js";

const NEAR = 400;
const AT_END = 40;
const TOGETHER_MS = 300_000;
/** How the kingdom's messages of each code begin: a mark in the reader's language stands there instead. */
const BEGINNINGS = {
  started: "[start] ",
  resumed: "",
  completed: "[complete] ",
  failed: "[failed] ",
  unanswerable: "[failed] ",
  skipped: "[skipped] ",
  question: "[question] ",
  alert: "[alert] ",
};

export class Timeline {
  constructor(hall, room, message) {
    this.hall = hall;
    this.room = room;
    this.wanted = message;
    this.rows = new Map();
    this.isAtEnd = true;
    this.list = h("div", {
      class: "timeline",
      role: "log",
      "aria-live": "off",
      "aria-label": t("messagesIn", roomName(room)[0]),
      tabindex: "0",
      onscroll: () => this.#scrolled(),
      onkeydown: (event) => this.#key(event),
    });
    this.pill = h("button", { type: "button", class: "pill", hidden: true, onclick: () => this.toEnd() }, icon("down"), h("span"));
    this.element = h("div", { class: "history" }, this.list, this.pill);
    this.onSeen = () => this.#seen();
    addEventListener("visibilitychange", this.onSeen);
    addEventListener("focus", this.onSeen);
    this.sizes = new ResizeObserver(() => (this.wanted ? this.show(this.wanted) : this.isAtEnd && this.#stick()));
    this.sizes.observe(this.list);
  }

  close() {
    removeEventListener("visibilitychange", this.onSeen);
    removeEventListener("focus", this.onSeen);
    this.sizes.disconnect();
  }

  /** Bring the page in line with what is known of the room. */
  draw() {
    const { list } = this;
    const wasAtEnd = this.isAtEnd;
    const heightBefore = list.scrollHeight;
    const topBefore = list.scrollTop;
    const firstBefore = this.first;
    const wanted = this.#wanted();
    this.#place(wanted);
    this.first = wanted.find((row) => row.message)?.key;
    if (this.wanted && this.rows.has(this.#keyOf(this.wanted))) this.show(this.wanted);
    else if (wasAtEnd && !this.room.isOld) this.#stick();
    else if (firstBefore && firstBefore !== this.first && this.rows.has(firstBefore))
      list.scrollTop = topBefore + list.scrollHeight - heightBefore;
    this.#drawPill();
    this.#seen();
    // A tall window may have room for more than a page.
    if (list.scrollHeight <= list.clientHeight + NEAR && this.first) this.#older();
  }

  /** Show a message, and mark it for a moment. */
  show(id) {
    const row = this.rows.get(this.#keyOf(id))?.element;
    // Without a height it is not in the page yet: it is shown when it gets one.
    if (!row || !this.list.clientHeight) return;
    this.wanted = null;
    row.scrollIntoView({ block: "center" });
    this.isAtEnd = this.#isAtEnd();
    row.classList.add("wanted");
    this.#activate(row);
  }

  /** Go to the newest message. */
  async toEnd() {
    this.isAtEnd = true;
    if (this.room.isOld) await this.hall.toNewest(this.room).catch(() => {});
    this.#stick();
    this.#seen();
  }

  #keyOf(id) {
    const message = this.room.messages.get(id);
    return message && keyOf(message.senderId, message.clientMsgId);
  }

  #stick() {
    this.list.scrollTop = this.list.scrollHeight;
  }

  /** Return a row for everything that should be seen. */
  #wanted() {
    const { room, hall } = this;
    const messages = room.sorted().filter((message) => !message.removes);
    const known = new Set(messages.map((message) => keyOf(message.senderId, message.clientMsgId)));
    const rows = [{ key: "start", drawn: `start ${room.isWhole} ${room.isLive || messages.length > 0} ${roomName(room)[0]}`, make: () => start(room, messages.length) }];
    const asked = openQuestion(messages, hall.kingdom);
    const answers = answersTo(messages);
    let before = null;
    let isNewShown = false;
    let isCutShown = false;
    for (const message of messages) {
      const isOtherDay = !before || day(before.createdAt) !== day(message.createdAt);
      if (isOtherDay) rows.push(divider(`day ${message.createdAt.slice(0, 10)} ${day(message.createdAt)}`, "day", day(message.createdAt)));
      if (room.cut && !isCutShown && message.id > room.cut) {
        isCutShown = true;
        rows.push(divider("cut", "cut", t("cut")));
      }
      const isFirstNew = room.newFrom != null && !isNewShown && message.id > room.newFrom && message.senderId !== hall.me.id;
      if (isFirstNew) {
        isNewShown = true;
        rows.push(divider("new", "new", t("new")));
      }
      const isHead = isOtherDay || isFirstNew || !together(before, message);
      const isOpen = message === asked;
      const answer = answers.get(message);
      const choices = isOpen || answer ? message.about.choices : null;
      rows.push(this.#message(message, isHead, choices, isOpen ? null : answer));
      before = message;
    }
    if (!room.isOld)
      for (const item of hall.outbox.of(room.id)) {
        const key = keyOf(hall.me.id, item.clientMsgId);
        if (known.has(key)) continue;
        const message = { ...item, senderId: hall.me.id, senderName: hall.me.name, createdAt: new Date(item.at).toISOString(), type: "TEXT" };
        rows.push(this.#message(message, !together(before, message), null, null, item));
        before = message;
      }
    const readers = this.#readers(messages);
    if (readers.length) rows.push({ key: "read", drawn: `read ${readers.join()}`, make: () => h("p", { class: "readers dim small" }, t("readBy", readers)) });
    return rows;
  }

  /** Return who has read one's own newest message, if it is the newest of all. */
  #readers(messages) {
    const { room, hall } = this;
    const last = messages.at(-1);
    if (!last || last.senderId !== hall.me.id || !room.members || !room.isLive) return [];
    const others = room.members.filter((member) => member.userId !== hall.me.id && (member.lastReadMessageId ?? "") >= last.id);
    return others.map((member) => member.name ?? t("somebody"));
  }

  /** `choices` are buttons, unless it is known which was the answer. */
  #message(message, isHead, choices, answer, item = null) {
    const name = message.senderName ?? this.hall.nameOf(this.room, message.senderId) ?? t("somebody");
    const mayRemove = !item && this.hall.mayRemove(message);
    const leadsTo = this.#leadsTo(message);
    const parts = [message.content, message.removed, message.createdAt, isHead, name, mayRemove, choices?.join("\n"), answer, leadsTo?.id, item?.state, item?.error];
    return {
      key: keyOf(message.senderId, message.clientMsgId),
      drawn: JSON.stringify(parts),
      message,
      make: () => this.#messageRow(message, { name, isHead, mayRemove, choices, answer, leadsTo, item }),
    };
  }

  #messageRow(message, { name, isHead, mayRemove, choices, answer, leadsTo, item }) {
    const isKingdom = message.type === "SYSTEM";
    const remove = () => removeMessage(this.hall, this.room, message);
    const classes = ["message", isHead && "head", isKingdom && "kingdoms", choices && !answer && "asks", message.removed && "gone", item && `is-${item.state}`];
    return h(
      "article",
      { class: classes.filter(Boolean).join(" "), "aria-label": t("messageOf", name, clock(message.createdAt)), tabindex: "-1" },
      isHead ? (isKingdom ? crown() : portrait(name, message.senderId)) : h("time", { class: "aside", datetime: message.createdAt, "aria-hidden": "true" }, clock(message.createdAt)),
      h(
        "div",
        { class: "said" },
        isHead
          ? h("p", { class: "by" }, h("strong", null, name), h("time", { class: "dim", datetime: message.createdAt, title: full(message.createdAt) }, clock(message.createdAt)))
          : null,
        h("div", { class: "text" }, message.removed ? t("removed") : contentOf(message, choices, leadsTo)),
        answer ? answered(choices, answer) : choices ? this.#choices(choices) : null,
        item ? this.#state(item) : null,
      ),
      mayRemove ? h("div", { class: "acts" }, iconButton("trash", t("removeFrom", name), remove, { tabindex: "-1" })) : null,
    );
  }

  /** Return the room that a line of the kingdom leads to: behind an arrow stands its name. */
  #leadsTo({ type, content }) {
    if (type !== "SYSTEM" || !content.startsWith("→ ")) return null;
    return [...this.hall.rooms.values()].find((room) => isTask(room) && room.name === content.slice(2)) ?? null;
  }

  #choices(choices) {
    const answer = (choice, buttons) => {
      for (const button of buttons.querySelectorAll("button")) button.disabled = true;
      this.hall.outbox.add(this.room.id, choice);
      this.toEnd();
    };
    const buttons = h("div", { class: "choices", role: "group", "aria-label": t("answerGroup") });
    buttons.append(...choices.map((choice) => h("button", { type: "button", onclick: () => answer(choice, buttons) }, choice)));
    return buttons;
  }

  #state(item) {
    const { outbox } = this.hall;
    if (item.state !== "failed") return h("p", { class: "state dim small" }, t(`state_of_${item.state}`));
    return h(
      "p",
      { class: "state failed small" },
      t("notSent", said(item.error ?? "")),
      " ",
      h("button", { type: "button", class: "link", onclick: () => outbox.retry(item.clientMsgId) }, t("retry")),
      " ",
      h("button", { type: "button", class: "link", onclick: () => outbox.discard(item.clientMsgId) }, t("discard")),
    );
  }

  /** Put the rows into the page: what is unchanged stays where it is. */
  #place(wanted) {
    const keys = new Set(wanted.map((row) => row.key));
    for (const [key, { element }] of this.rows) if (!keys.has(key)) (element.remove(), this.rows.delete(key));
    let at = this.list.firstChild;
    for (const row of wanted) {
      const known = this.rows.get(row.key);
      let element = known?.element;
      if (known?.drawn !== row.drawn) {
        element = row.make();
        if (known) {
          const isFocused = known.element.contains(document.activeElement);
          if (at === known.element) at = element;
          known.element.replaceWith(element);
          if (isFocused) this.#activate(element);
        }
        this.rows.set(row.key, { element, drawn: row.drawn });
      }
      if (element !== at) this.list.insertBefore(element, at);
      else at = at.nextSibling;
    }
  }

  #scrolled() {
    const { list, room } = this;
    this.isAtEnd = this.#isAtEnd();
    if (list.scrollTop < NEAR) this.#older();
    if (room.isOld && list.scrollHeight - list.scrollTop - list.clientHeight < NEAR) this.hall.newer(room).catch(() => {});
    this.#drawPill();
    this.#seen();
  }

  #isAtEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.list;
    return scrollHeight - scrollTop - clientHeight < AT_END;
  }

  #older() {
    this.hall.older(this.room).catch(() => {});
  }

  #drawPill() {
    const { room, pill } = this;
    pill.hidden = this.isAtEnd && !room.isOld;
    const text = room.isOld ? t("toNewest") : room.unread ? t("newBelow", room.unread) : t("toNewest");
    pill.lastChild.textContent = text;
  }

  #seen() {
    if (this.isAtEnd && this.list.isConnected) this.hall.sawNewest(this.room);
  }

  // Keys: the history is one stop of Tab; arrows go from message to message, and Tab on to what can be done with it.

  #key(event) {
    const current = document.activeElement.closest?.("article");
    if (["ArrowUp", "ArrowDown"].includes(event.key) && !event.altKey) {
      const all = [...this.list.querySelectorAll("article")];
      const at = current ? all.indexOf(current) + (event.key === "ArrowUp" ? -1 : 1) : all.length - 1;
      if (all[at]) {
        event.preventDefault();
        this.#activate(all[at]);
      }
    } else if (event.key === "Delete" && current) current.querySelector(".acts button")?.click();
    else if (event.key === "End" && !event.shiftKey) this.toEnd();
    else if (event.key === "Escape") document.getElementById("write")?.focus();
  }

  #activate(row) {
    for (const active of this.list.querySelectorAll('article[tabindex="0"], .acts [tabindex="0"]')) active.setAttribute("tabindex", "-1");
    for (const active of [row, ...row.querySelectorAll(".acts button")]) active.setAttribute("tabindex", "0");
    row.focus();
  }
}

function keyOf(sender, clientMsgId) {
  return `${sender} ${clientMsgId.toLowerCase()}`;
}

function together(before, message) {
  return (
    before &&
    before.senderId === message.senderId &&
    before.type === message.type &&
    day(before.createdAt) === day(message.createdAt) &&
    Date.parse(message.createdAt) - Date.parse(before.createdAt) < TOGETHER_MS
  );
}

/** Return the question that waits for an answer: nobody has written after it, nor the kingdom of anything else, and
 * what the kingdom does is not known to be without it. */
function openQuestion(messages, kingdom) {
  const asked = messages.findLast((message) => message.type !== "SYSTEM" || (message.about && message.about.code !== "reminder"));
  if (!asked?.about?.choices?.length) return null;
  const isOver =
    kingdom && kingdom.takenAt > asked.createdAt && !kingdom.askingMore &&
    !kingdom.asking.some((question) => question.taskId === asked.about.taskId);
  return isOver ? null : asked;
}

/** Return by each question the choice that somebody took, where one was taken before the kingdom said anything else. */
function answersTo(messages) {
  const taken = new Map();
  let asked = null;
  for (const message of messages) {
    if (message.type === "SYSTEM") {
      if (message.about && message.about.code !== "reminder") asked = message.about.choices?.length && !message.removed ? message : null;
    } else if (asked) {
      if (asked.about.choices.includes(message.content)) taken.set(asked, message.content);
      asked = null;
    }
  }
  return taken;
}

function answered(choices, answer) {
  const row = (choice) =>
    choice === answer ? h("li", { class: "taken" }, icon("check"), choice, h("span", { class: "unseen" }, ` (${t("taken")})`)) : h("li", null, choice);
  return h("ul", { class: "choices", "aria-label": t("answerGroup") }, choices.map(row));
}

/** Return what a message says, without the choices at its end where they are buttons. */
function contentOf(message, choices, leadsTo) {
  if (leadsTo) return ["→ ", h("a", { href: `#/room/${leadsTo.id}` }, roomName(leadsTo)[0])];
  if (message.type === "IMAGE")
    return [h("span", { class: "dim" }, `${t("image")} `), isWebAddress(message.content) ? link(message.content) : message.content];
  const lines = message.content.trimEnd().split("\n");
  for (const choice of [...(choices ?? [])].reverse()) if (lines.length > 1 && lines.at(-1).trimEnd().endsWith(choice)) lines.pop();
  return marked(message, choices ? lines.join("\n") : message.content);
}

/** Return a text; of the kingdom's with a mark for what it tells, where its beginning says that. */
function marked({ type, about }, content) {
  const code = about ? about.code : content.startsWith(BEGINNINGS.alert) ? "alert" : null;
  if (type !== "SYSTEM" || !Object.hasOwn(BEGINNINGS, code)) return text(content);
  const beginning = BEGINNINGS[code];
  // The first message of a task's room has the name of the task before it.
  const at = content.startsWith(beginning) ? 0 : content.indexOf(`\n${beginning}`) + 1;
  if (!at && !content.startsWith(beginning)) return text(content);
  const mark = h("span", { class: "code", "data-code": code }, t(`code_${code}`));
  return [text(content.slice(0, at)), mark, " ", text(content.slice(at + beginning.length))];
}

function divider(key, kind, label) {
  return { key, drawn: key + label, make: () => h("div", { class: `divider ${kind}`, role: "separator", "aria-label": label }, h("span", { "aria-hidden": "true" }, label)) };
}

function start(room, count) {
  if (!room.isWhole) return h("p", { class: "start dim small" }, count || room.isLive ? t("loadingOlder") : t("loading"));
  return h("div", { class: "start" }, h("h2", null, roomName(room)[0]), h("p", { class: "dim" }, t("beginning")));
}
