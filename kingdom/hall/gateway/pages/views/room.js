/** A room: its history, who is there, and the box to write into. */

import { crownMark, fill, h, icon, iconButton, skipLink } from "../dom.js";
import { isOwn } from "../own.js";
import { go } from "../router.js";
import { roomName, t } from "../words.js";
import { Composer } from "./composer.js";
import { leaveRoom } from "./dialogs.js";
import { viewHead } from "./head.js";
import { knock } from "./invitation.js";
import { isThere, members } from "./members.js";
import { Timeline } from "./timeline.js";

const PANEL = "kingdom.panel";
/** Where the style sheet lays people over the talk. */
const OVER = matchMedia("(max-width: 1023px)");

export class RoomView {
  constructor(hall, id, message) {
    this.hall = hall;
    this.id = id;
    this.message = message;
    const touch = ({ target }) => {
      const { panel, toggle } = this.inside ?? {};
      if (!panel?.contains(target) && !toggle?.contains(target)) this.#uncover();
    };
    this.element = h("main", { class: "room", id: "main", tabindex: "-1", onpointerdown: touch });
    this.end = hall.on([`room ${id}`, "rooms", "kingdom"], () => this.#draw());
    this.inside = null;
    this.onKey = (event) => event.key === "Escape" && !event.isComposing && !document.querySelector("dialog[open]") && this.#uncover();
    this.onWidth = () => this.#uncover();
    addEventListener("keydown", this.onKey);
    OVER.addEventListener("change", this.onWidth);
    hall.open(id, message).catch(() => {});
    this.#draw();
  }

  shown() {
    if (this.inside && matchMedia("(pointer: fine)").matches) this.inside.composer.focus();
    else this.element.focus();
  }

  /** Stay where the address names another message of this room. */
  moved(place) {
    if (place.name !== "room" || place.ids[0].toLowerCase() !== this.id) return false;
    this.message = place.ids[1];
    if (this.message) this.hall.open(this.id, this.message).then(() => this.inside?.timeline.show(this.message));
    return true;
  }

  close() {
    this.end();
    removeEventListener("keydown", this.onKey);
    OVER.removeEventListener("change", this.onWidth);
    this.inside?.timeline.close();
    this.inside?.composer.close();
    this.hall.close(this.id);
  }

  get room() {
    return this.hall.rooms.get(this.id);
  }

  #draw() {
    if (!this.room) this.#drawStranger();
    else {
      this.inside ??= this.#enter();
      this.#update();
    }
  }

  /** Show what can be done about a room that one is not in, once the list of rooms is known. */
  #drawStranger() {
    if (this.inside) {
      this.inside.timeline.close();
      this.inside = null;
      this.element.replaceChildren();
    }
    if (this.hall.isListed && !this.element.childElementCount)
      fill(this.element, viewHead(t("strangeRoomTitle")), h("div", { class: "middle" }, knock(this.hall, this.id)));
  }

  #enter() {
    const { hall, room } = this;
    const title = h("h1");
    const there = h("span", { class: "dim there" });
    const leave = (event) => {
      if (event.key === "Escape") this.#closePanel();
    };
    const panel = h("aside", { class: "panel", "aria-label": t("people"), onkeydown: leave });
    const toggle = iconButton("people", t("people"), () => this.#toggle(), { "aria-expanded": "false" });
    const composer = new Composer(hall, room, () => timeline.toEnd());
    const timeline = new Timeline(hall, room, this.message);
    const hadFocus = this.element.contains(document.activeElement);
    const typing = h("p", { class: "typing dim small" });
    fill(
      this.element,
      skipLink("write", t("skipToBox")),
      h(
        "header",
        { class: "view-head" },
        h("a", { class: "quiet back", href: "#/", "aria-label": t("back"), title: t("back") }, icon("back")),
        h("div", { class: "titles" }, title, there),
        iconButton("search", t("searchHere"), () => go(`/search?room=${this.id}`)),
        toggle,
      ),
      h("div", { class: "body" }, h("div", { class: "talk" }, timeline.element, typing, composer.element), panel),
    );
    const inside = { title, there, panel, toggle, composer, timeline, typing };
    this.inside = inside;
    const isWide = matchMedia("(min-width: 1180px)").matches;
    this.#toggle(isWide && localStorage.getItem(PANEL) !== "closed", false);
    hall.open(this.id, this.message).catch(() => {});
    if (hadFocus) this.shown();
    return inside;
  }

  /** Close the panel where it lies over the talk. */
  #uncover() {
    if (this.inside && OVER.matches && !this.inside.panel.hidden) this.#closePanel();
  }

  #closePanel() {
    const { panel, toggle } = this.inside;
    const hadFocus = panel.contains(document.activeElement);
    this.#toggle(false);
    if (hadFocus) toggle.focus();
  }

  #toggle(isOpen = this.inside.panel.hidden, isKept = !OVER.matches) {
    const { panel, toggle } = this.inside;
    panel.hidden = !isOpen;
    toggle.setAttribute("aria-expanded", String(isOpen));
    if (isKept) localStorage.setItem(PANEL, isOpen ? "open" : "closed");
  }

  #update() {
    const { hall, room, inside } = this;
    const [name, task] = roomName(room);
    fill(inside.title, isOwn(room) ? crownMark(t("ownRoom")) : null, name);
    // Without a connection nobody knows who is there.
    const there = room.members && room.hasJoined ? t("thereOf", room.members.filter((member) => isThere(room, member)).length, room.members.length) : "";
    inside.there.textContent = [there, task].filter(Boolean).join(" · ");
    inside.timeline.draw();
    const typing = [...room.typing.keys()].map((user) => hall.nameOf(room, user) ?? t("somebody"));
    inside.typing.textContent = typing.length ? t("typing", typing) : "";
    fill(inside.panel, members(hall, room, () => leaveRoom(hall, room)));
  }
}
