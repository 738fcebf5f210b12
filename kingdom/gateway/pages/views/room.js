/** A room: its history, who is there, and the box to write into. */

import { fill, h, icon, iconButton, skipLink } from "../dom.js";
import { go } from "../router.js";
import { roomName, t } from "../words.js";
import { Composer } from "./composer.js";
import { leaveRoom } from "./dialogs.js";
import { viewHead } from "./head.js";
import { invitation } from "./invitation.js";
import { isThere, members } from "./members.js";
import { Timeline } from "./timeline.js";

const PANEL = "kingdom.panel";

export class RoomView {
  constructor(hall, id, message) {
    this.hall = hall;
    this.id = id;
    this.message = message;
    this.element = h("main", { class: "room", id: "main", tabindex: "-1" });
    this.end = hall.on([`room ${id}`, "rooms", "kingdom"], () => this.#draw());
    this.inside = null;
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

  /** Show a room that one is not in, once the list of rooms is known. */
  #drawStranger() {
    if (this.inside) {
      this.inside.timeline.close();
      this.inside = null;
      this.element.replaceChildren();
    }
    if (this.hall.link === "up" && !this.element.childElementCount)
      fill(this.element, viewHead(t("room")), ...invitation(this.hall, this.id).element.childNodes);
  }

  #enter() {
    const { hall, room } = this;
    const title = h("h1", null, roomName(room)[0]);
    const there = h("span", { class: "dim there" });
    const leave = (event) => {
      if (event.key !== "Escape") return;
      this.#toggle(false);
      toggle.focus();
    };
    const panel = h("aside", { class: "panel", "aria-label": t("people"), onkeydown: leave });
    const toggle = iconButton("people", t("people"), () => this.#toggle(), { "aria-expanded": "false" });
    const composer = new Composer(hall, room, () => timeline.toEnd());
    const timeline = new Timeline(hall, room, this.message);
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
    if (this.element.contains(document.activeElement)) this.shown();
    return inside;
  }

  #toggle(isOpen = this.inside.panel.hidden, isKept = true) {
    const { panel, toggle } = this.inside;
    panel.hidden = !isOpen;
    toggle.setAttribute("aria-expanded", String(isOpen));
    if (isKept) localStorage.setItem(PANEL, isOpen ? "open" : "closed");
  }

  #update() {
    const { hall, room, inside } = this;
    const [name, task] = roomName(room);
    inside.title.textContent = name;
    // Without a connection nobody knows who is there.
    const there = room.members && room.hasJoined ? t("thereOf", room.members.filter((member) => isThere(room, member)).length, room.members.length) : "";
    inside.there.textContent = [there, task].filter(Boolean).join(" · ");
    inside.timeline.draw();
    const typing = [...room.typing.keys()].map((user) => hall.nameOf(room, user) ?? t("somebody"));
    inside.typing.textContent = typing.length ? t("typing", typing) : "";
    fill(inside.panel, members(hall, room, () => leaveRoom(hall, room)));
  }
}
