/** A link to a room, for somebody who is signed in. */

import { h } from "../dom.js";
import { go } from "../router.js";
import { said, t } from "../words.js";

/** Return the view for an invitation. */
export function invitation(hall, room, code) {
  const card = room
    ? joining(hall, room, code, [h("h1", null, t("joinRoomTitle")), h("p", { class: "dim" }, t("joinRoomText", hall.me.name))], (error) => said(error.message))
    : h("div", { class: "card" }, h("h1", null, t("inAlready")), h("p", { class: "dim" }, t("inAlreadyText")), h("a", { class: "button", href: "#/" }, t("toRooms")));
  return { element: h("main", { class: "middle", id: "main", tabindex: "-1" }, card) };
}

/** Answers to who knocks without an invitation. Which of them it is, is nothing for strangers. */
const STRANGE = new Set(["Room not found", "This room is joined by invitation"]);

/** Return a card for a room that one is not in and that need not be there. */
export function knock(hall, room) {
  const text = [h("p", null, t("strangeRoom")), h("p", { class: "dim" }, t("strangeRoomText", hall.me.name))];
  return joining(hall, room, null, text, (error) => (STRANGE.has(error.message) ? t("strangeRoomRefused") : said(error.message)));
}

function joining(hall, room, code, text, reason) {
  const why = h("p", { class: "alert", role: "alert" });
  async function join() {
    try {
      await hall.joinRoom(room.toLowerCase(), code);
      go(`/room/${room.toLowerCase()}`, { replace: true });
    } catch (error) {
      why.textContent = reason(error);
    }
  }
  return h("div", { class: "card" }, text, why, h("button", { type: "button", class: "main", onclick: join }, t("join")));
}
