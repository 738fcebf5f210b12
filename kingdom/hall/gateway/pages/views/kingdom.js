/** What the kingdom does now, in columns by how much attention each needs. */

import { fill, h } from "../dom.js";
import { full, lasting, roomName, sentence, t } from "../words.js";
import { giveOrder, restartRole } from "./dialogs.js";
import { viewHead } from "./head.js";

export function kingdom(hall) {
  const sheet = h("div", { class: "sheet wide" });

  /** Draw it anew, and leave the focus where it is: a look comes every few seconds. */
  function redraw() {
    const label = sheet.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    draw();
    if (label) [...sheet.querySelectorAll("button")].find((found) => found.getAttribute("aria-label") === label)?.focus();
  }

  function draw() {
    const told = hall.kingdom;
    if (!told) {
      fill(sheet, h("p", { class: "dim" }, told === false ? t("kingdomNotForYou") : t("noAnswer")));
      return;
    }
    fill(
      sheet,
      h("p", { class: "now", "data-state": told.state }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", null, summary(told))),
      h("p", { class: "told dim" }, sentence(told.line, told.says)),
      h(
        "div",
        { class: "columns" },
        column("asking", told.asking, told.askingMore, (row) => asking(hall, row)),
        column("failed", told.failed, 0, (row) => failed(hall, row)),
        column("running", told.running, told.runningMore, (row) => running(hall, row)),
        column("waiting", told.waiting, told.waitingMore, (row) => waiting(hall, row)),
      ),
      h("section", { class: "roles" }, h("h2", null, t("roles")), h("ul", null, told.roles.map((row) => role(hall, row)))),
      h("p", { class: "dim small" }, t("takenAt", full(told.takenAt)), told.nextRun ? ` · ${t("nextRun", told.nextRun.schedule, full(told.nextRun.at))}` : "",
        told.dead ? ` · ${t("dead", told.dead)}` : ""),
    );
  }

  const end = hall.on("kingdom", redraw);
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

/** Return how a row is called: a task with a room by what the room is about, and what it is else in small letters. */
function titled(hall, { roomId, taskId, id = taskId }, what) {
  // The kingdom forgets the room of a task that has ended; its name still tells.
  const room = hall.rooms.get(roomId) ?? [...hall.rooms.values()].find((known) => roomName(known)[1] === id);
  if (!room) return { name: what, head: [h("p", null, what)] };
  const [name] = roomName(room);
  return { name, head: [h("p", null, h("a", { href: `#/room/${room.id}` }, name)), h("p", { class: "dim small" }, what)] };
}

function failed(hall, row) {
  const { name, head } = titled(hall, row, row.what);
  return [...head, h("p", { class: "dim small" }, sentence(row.why, row.says)), h("p", { class: "dim small" }, full(row.at)),
    row.taskId ? orderButton(hall, "retry", row.taskId, name) : row.requeues ? orderButton(hall, "requeue", row.requeues, name) : null];
}

function running(hall, row) {
  const { name, head } = titled(hall, row, [row.general, row.type].filter(Boolean).join(" · "));
  const about = [row.repo, row.attempt ? t("attempt", row.attempt + 1) : null, row.seconds == null ? null : lasting(row.seconds)];
  return [...head, h("p", { class: "dim small" }, about.filter(Boolean).join(" · ")), orderButton(hall, "cancel", row.taskId, name)];
}

/** Return in a few words of the reader's language what the kingdom does; its own line says more, in its own. */
export function summary(told) {
  const asks = told.asking.length + told.askingMore;
  const runs = told.running.length + told.runningMore;
  return asks ? t("asks", asks) : runs ? t("works", runs) : t(`state_${told.state}`);
}

/** What owners may order about what waits, by the kind of thing. */
const ORDERS = { events: "discard", tasks: "cancel" };

function waiting(hall, row) {
  const action = ORDERS[row.kind];
  const { name, head } = titled(hall, row, row.what);
  return [...head, h("p", { class: "dim small" }, sentence(row.why, row.says)), row.seconds ? h("p", { class: "dim small" }, lasting(row.seconds)) : null,
    action ? orderButton(hall, action, row.id, name) : null];
}

function orderButton(hall, action, target, what) {
  if (hall.me.role !== "owner") return null;
  return button(t(`order_${action}`), what, () => giveOrder(hall, action, target, what));
}

function button(says, what, onclick) {
  return h("button", { type: "button", class: "link small", "aria-label": `${says}: ${what}`, onclick }, says);
}

const WELL = new Set(["working", "idle", "starting", "foreign"]);

/** The states of a role that has a process of ours. */
const RUNS = new Set(["working", "idle", "degraded", "starting", "silent"]);

function role(hall, row) {
  const state = row.restarting ? "restarting" : row.state;
  const mayRestart = hall.me.role === "owner" && !row.restarting && RUNS.has(row.state);
  const age = row.beatSeconds == null ? "" : t("beat", lasting(row.beatSeconds));
  return h(
    "li",
    { class: WELL.has(row.state) ? null : row.state === "down" ? "rests" : "ill" },
    h("span", { class: "dot", "aria-hidden": "true" }),
    h("span", { class: "name" }, row.name),
    h("span", { class: "dim small" }, [t(`role_is_${state}`), age, row.restarts && t("restarts", row.restarts)].filter(Boolean).join(" · ")),
    mayRestart ? button(t("restart"), row.name, () => restartRole(hall, row.name)) : null,
  );
}
