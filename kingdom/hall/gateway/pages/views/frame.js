/** The frame: rooms at the left, one view beside them, and the keys that work everywhere. */

import { announce, crown, crownMark, fill, h, icon, iconButton, skipLink } from "../dom.js";
import { isOwn, isTask, THRONE_ROOM } from "../own.js";
import { go, here } from "../router.js";
import { brief, roomName, t } from "../words.js";
import { account } from "./account.js";
import { invitation } from "./invitation.js";
import { kingdom, summary } from "./kingdom.js";
import { newRoom } from "./dialogs.js";
import { RoomView } from "./room.js";
import { search } from "./search.js";

/** A function for each place: it returns a view with `element`, and if need be `close` and `moved`. */
const VIEWS = {
  home: () => ({ element: h("main", { id: "main", class: "nothing", tabindex: "-1" }, h("h1", { class: "unseen" }, "Kingdom"), h("p", { class: "dim" }, t("chooseRoom"))) }),
  room: (frame, place) => new RoomView(frame.hall, place.ids[0].toLowerCase(), place.ids[1]),
  join: (frame, place) => invitation(frame.hall, ...place.ids),
  search: (frame, place) => search(frame.hall, place.query),
  kingdom: (frame) => kingdom(frame.hall),
  account: (frame) => account(frame.hall, frame.redraw),
};

export class Frame {
  constructor(hall, redraw) {
    this.hall = hall;
    this.redraw = redraw;
    this.view = null;
    this.rows = new Map();
    this.hasEntered = hall.rooms.size > 0;
    this.list = h("ul", { class: "rooms" });
    this.tasks = h("ul", { class: "rooms" });
    this.ended = h("ul", { class: "rooms" });
    this.endedHead = h("summary");
    this.endedFold = h("details", null, this.endedHead, this.ended);
    this.tasksHead = h("h2", null, t("tasks"));
    this.strip = h("a", { class: "strip", href: "#/kingdom" });
    this.banner = h("div", { class: "banner", role: "status" });
    this.place = h("div", { class: "place" });
    this.element = h(
      "div",
      { class: "frame" },
      skipLink("main", t("skipToContent")),
      this.#side(),
      this.place,
    );
    this.ends = [
      hall.on(["rooms", "kingdom"], () => this.#drawRooms()),
      hall.on("rooms", () => this.#enterOnlyRoom()),
      hall.on(["link", "outbox"], () => this.#drawBanner()),
      hall.on("kingdom", () => this.#drawStrip()),
      hall.on("heard", () => this.#tellHeard()),
    ];
    this.onKey = (event) => this.#key(event);
    addEventListener("keydown", this.onKey);
    this.#drawRooms();
    this.#drawBanner();
    this.#drawStrip();
  }

  close() {
    this.view?.close?.();
    this.ends.forEach((end) => end());
    removeEventListener("keydown", this.onKey);
  }

  /** Show the place that the address names. */
  move() {
    const place = here();
    this.element.classList.toggle("at-home", place.name === "home");
    this.find.value = place.name === "search" ? (place.query.get("q") ?? "") : "";
    if (this.view?.moved?.(place)) return;
    this.view?.close?.();
    this.view = VIEWS[place.name](this, place);
    this.place.replaceChildren(this.banner, this.view.element);
    this.view.shown?.();
    this.#drawRooms();
  }

  #side() {
    const find = (this.find = h("input", {
      type: "search",
      id: "find",
      maxlength: 100,
      placeholder: t("search"),
      "aria-label": t("searchEverywhere"),
      autocomplete: "off",
    }));
    const look = (event) => {
      event.preventDefault();
      if (find.value.trim()) go(`/search?${new URLSearchParams({ q: find.value.trim() })}`);
    };
    const { me } = this.hall;
    return h(
      "nav",
      { class: "side", "aria-label": t("rooms") },
      h("div", { class: "top" }, h("a", { href: "#/", class: "brand" }, crown(), "Kingdom")),
      h("form", { class: "find", role: "search", "aria-label": t("searchEverywhere"), onsubmit: look }, icon("search"), find),
      this.strip,
      h("div", { class: "head" }, h("h2", null, t("rooms")), iconButton("plus", t("newRoom"), () => newRoom(this.hall))),
      h("div", { class: "lists" }, this.list, this.tasksHead, this.tasks, this.endedFold),
      h("a", { class: "mine", href: "#/account" }, h("span", { class: "name" }, me.name), icon("gear"),
        h("span", { class: "unseen" }, t("account"))),
    );
  }

  #drawRooms() {
    const { name, ids } = here();
    const open = name === "room" ? ids[0].toLowerCase() : null;
    const asking = new Set(this.hall.kingdom ? this.hall.kingdom.asking.map((question) => question.roomId) : []);
    const row = (room) => {
      const isOpen = room.id === open;
      const asks = asking.has(room.id);
      const drawn = [room.name, isOwn(room), isTask(room), room.unread, room.lastMessageAt, isOpen, asks].join("\n");
      const known = this.rows.get(room.id);
      if (known?.drawn === drawn) return known.row;
      const made = roomRow(room, isOpen, asks);
      this.rows.set(room.id, { row: made, drawn });
      return made;
    };
    const focused = document.activeElement?.closest?.(".rooms li");
    const { people, tasks, ended } = (this.order = this.#sorted(open));
    fill(this.list, people.map(row), people.length + tasks.length + ended.length ? null : h("li", { class: "dim none" }, t("noRooms")));
    fill(this.tasks, tasks.map(row));
    fill(this.ended, ended.map(row));
    this.tasksHead.hidden = !tasks.length && !ended.length;
    this.endedFold.hidden = !ended.length;
    this.endedHead.textContent = t("endedTasks", ended.length);
    if (focused && !focused.contains(document.activeElement)) this.rows.get(focused.dataset.room)?.row.querySelector("a").focus();
    const unread = [...this.hall.rooms.values()].filter((room) => room.unread).length;
    document.title = unread ? `(${unread}) Kingdom` : "Kingdom";
  }

  /** Return the rooms as they are listed: a task is over that is known not to be in hand, and shown while it is open or unread. */
  #sorted(open) {
    const { kingdom, rooms } = this.hall;
    const inHand = kingdom && new Set([...kingdom.asking, ...kingdom.running, ...kingdom.waiting].flatMap((row) => [row.roomId, row.taskId ?? row.id]));
    const isOver = (room) => inHand && !room.unread && room.id !== open && !inHand.has(room.id) && !inHand.has(roomName(room)[1]);
    const listed = { people: [], tasks: [], ended: [] };
    for (const room of rooms.values()) listed[!isTask(room) ? "people" : isOver(room) ? "ended" : "tasks"].push(room);
    return listed;
  }

  /** Go into the throne room when one has just come and there is no other room. */
  #enterOnlyRoom() {
    if (this.hasEntered || !this.hall.rooms.size) return;
    this.hasEntered = true;
    const [only, ...others] = this.hall.rooms.keys();
    if (only === THRONE_ROOM && !others.length && here().name === "home") go(`/room/${only}`, { replace: true });
  }

  #drawBanner() {
    const { link, outbox } = this.hall;
    const waits = outbox?.waiting() ?? 0;
    this.banner.hidden = link !== "down";
    if (link === "down") {
      fill(
        this.banner,
        h("span", null, t("offline"), waits ? ` ${t("waitToBeSent", waits)}` : ""),
        h("button", { type: "button", class: "link", onclick: () => this.hall.line?.reconnect() }, t("connectNow")),
      );
    } else fill(this.banner);
  }

  #drawStrip() {
    const told = this.hall.kingdom;
    this.strip.hidden = !told;
    if (!told) return;
    this.strip.dataset.state = told.asking.length ? "asking" : told.state;
    fill(
      this.strip,
      h("span", { class: "dot", "aria-hidden": "true" }),
      h("span", null, summary(told)),
    );
  }

  #tellHeard() {
    const { room, message } = this.hall.heard;
    if (message.senderId === this.hall.me?.id) return;
    const name = message.senderName ?? t("somebody");
    const isHere = room.id === this.hall.current;
    announce(isHere ? `${name}: ${message.content}` : t("newIn", roomName(room)[0], name));
  }

  #key(event) {
    if (event.isComposing || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      this.#step(event.key === "ArrowDown" ? 1 : -1);
    } else if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      document.getElementById("find").focus();
    } else if (event.key === "Escape" && !["home", "room"].includes(here().name)) {
      history.length > 1 ? history.back() : go("/");
    }
  }

  /** Go to the next or the previous room in the list. */
  #step(by) {
    const { people, tasks, ended } = this.order;
    const ids = [...people, ...tasks, ...(this.endedFold.open ? ended : [])].map((room) => room.id);
    if (!ids.length) return;
    const at = ids.indexOf(here().ids[0]);
    go(`/room/${ids[(at + by + ids.length) % ids.length]}`);
  }
}

function roomRow(room, isOpen, asks) {
  const label = room.unread ? t("unreadIn", room.unread) : null;
  const [name, task] = roomName(room);
  const row = h(
    "li",
    null,
    h(
      "a",
      { href: `#/room/${room.id}`, class: room.unread ? "unread" : null, "aria-current": isOpen ? "page" : null },
      h("span", { class: "name", title: room.name }, isOwn(room) ? crownMark(t("ownRoom")) : null, name, task ? h("span", { class: "task" }, ` ${task}`) : null),
      asks ? h("span", { class: "asks", role: "img", "aria-label": t("asksIn"), title: t("asksIn") }) : null,
      label
        ? h("span", { class: "count" }, h("span", { "aria-hidden": "true" }, String(room.unread)), h("span", { class: "unseen" }, label))
        : h("time", { class: "dim", datetime: room.lastMessageAt }, brief(room.lastMessageAt)),
    ),
  );
  row.dataset.room = room.id;
  return row;
}
