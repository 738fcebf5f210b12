/** The head of a view: the way back on a phone, and the title. */

import { h, icon } from "../dom.js";
import { t } from "../words.js";

export function viewHead(title, ...more) {
  return h(
    "header",
    { class: "view-head" },
    h("a", { class: "quiet back", href: "#/", "aria-label": t("back"), title: t("back") }, icon("back")),
    h("h1", null, title),
    more,
  );
}
