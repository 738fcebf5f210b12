/** The head of a view: the way back on a phone, to the rooms or to one of them, and the title. */

import { h, icon } from "../dom.js";
import { roomName, t } from "../words.js";

export function viewHead(title, room) {
  const back = room ? t("backTo", roomName(room)[0]) : t("back");
  return h(
    "header",
    { class: "view-head" },
    h("a", { class: "quiet back", href: room ? `#/room/${room.id}` : "#/", "aria-label": back, title: back }, icon("back")),
    h("h1", null, title),
  );
}
