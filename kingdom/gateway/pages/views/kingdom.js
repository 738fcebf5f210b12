/** What the kingdom does now, in columns by how much attention each needs. */

import { fill, h } from "../dom.js";
import { full, lasting, t } from "../words.js";
import { viewHead } from "./head.js";

export function kingdom(hall) {
  const sheet = h("div", { class: "sheet wide" });

  function draw() {
    const told = hall.kingdom;
    if (!told) {
      fill(sheet, h("p", { class: "dim" }, told === false ? t("kingdomNotForYou") : t("noAnswer")));
      return;
    }
    fill(
      sheet,
      h("p", { class: "now", "data-state": told.state }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", null, told.line)),
      h(
        "div",
        { class: "columns" },
        column("asking", told.asking, told.askingMore, (row) => asking(hall, row)),
        column("failed", told.failed, 0, failed),
        column("running", told.running, told.runningMore, running),
        column("waiting", told.waiting, told.waitingMore, waiting),
      ),
      h("section", { class: "roles" }, h("h2", null, t("roles")), h("ul", null, told.roles.map(role))),
      h("p", { class: "dim small" }, t("takenAt", full(told.takenAt)), told.nextRun ? ` · ${t("nextRun", told.nextRun.schedule, full(told.nextRun.at))}` : "",
        told.dead ? ` · ${t("dead", told.dead)}` : ""),
    );
  }

  const end = hall.on("kingdom", draw);
  draw();
  hall.look();
  return { element: h("main", { class: "page", id: "main", tabindex: "-1" }, viewHead(t("kingdom")), sheet), close: end };
}

function column(name, rows, more, row) {
  return h(
    "section",
    { class: `column ${name}`, "aria-labelledby": `column-${name}` },
    h("h2", { id: `column-${name}` }, t(`column_${name}`), h("span", { class: "dim" }, ` ${rows.length + more}`)),
    rows.length ? h("ul", null, rows.map((item) => h("li", null, row(item)))) : h("p", { class: "dim small" }, t(`none_${name}`)),
    more ? h("p", { class: "dim small" }, t("more", more)) : null,
  );
}

function asking(hall, row) {
  const question = row.question.trim().split("\n")[0];
  const about = [row.general, row.about].filter(Boolean).join(" · ");
  const name = row.roomId && hall.rooms.has(row.roomId) ? h("a", { href: `#/room/${row.roomId}` }, question) : question;
  return [h("p", null, name), h("p", { class: "dim small" }, about, " · ", lasting(row.seconds))];
}

function failed(row) {
  return [h("p", null, row.what), h("p", { class: "dim small" }, row.why), h("p", { class: "dim small" }, full(row.at))];
}

function running(row) {
  const what = [row.general, row.type].filter(Boolean).join(" · ");
  const name = row.roomId ? h("a", { href: `#/room/${row.roomId}` }, what) : what;
  const about = [row.repo, row.attempt ? t("attempt", row.attempt + 1) : null, row.seconds == null ? null : lasting(row.seconds)];
  return [h("p", null, name), h("p", { class: "dim small" }, about.filter(Boolean).join(" · "))];
}

function waiting(row) {
  return [h("p", null, row.what), h("p", { class: "dim small" }, row.why), h("p", { class: "dim small" }, lasting(row.seconds))];
}

const WELL = new Set(["working", "idle", "starting", "foreign"]);

function role(row) {
  const age = row.beatSeconds == null ? "" : t("beat", lasting(row.beatSeconds));
  return h(
    "li",
    { class: WELL.has(row.state) ? null : row.state === "down" ? "rests" : "ill" },
    h("span", { class: "dot", "aria-hidden": "true" }),
    h("span", { class: "name" }, row.name),
    h("span", { class: "dim" }, t(`role_is_${row.state}`)),
    h("span", { class: "dim small" }, age, row.restarts ? ` · ${t("restarts", row.restarts)}` : ""),
  );
}
