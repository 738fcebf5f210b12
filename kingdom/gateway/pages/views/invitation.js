/** A link to a room, for somebody who is signed in. */

import { h } from "../dom.js";
import { go } from "../router.js";
import { said, t } from "../words.js";

/** Return the view for an invitation, or without a code for a room that one is not in. */
export function invitation(hall, room, code) {
  const why = h("p", { class: "alert", role: "alert" });
  async function join() {
    try {
      await hall.joinRoom(room.toLowerCase(), code);
      go(`/room/${room.toLowerCase()}`, { replace: true });
    } catch (error) {
      why.textContent = said(error.message);
    }
  }
  const card = room
    ? [h("h1", null, t("joinRoomTitle")), h("p", { class: "dim" }, t("joinRoomText", hall.me.name)), why,
       h("button", { type: "button", class: "main", onclick: join }, t("join"))]
    : [h("h1", null, t("inAlready")), h("p", { class: "dim" }, t("inAlreadyText")), h("a", { class: "button", href: "#/" }, t("toRooms"))];
  return { element: h("main", { class: "middle", id: "main", tabindex: "-1" }, h("div", { class: "card" }, card)) };
}
