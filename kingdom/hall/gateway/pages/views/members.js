/** Who is in a room, those who are there now first; the way to bring others in; the way out. */

import { crown, h, icon, portrait } from "../dom.js";
import { isKingdom } from "../own.js";
import { t } from "../words.js";
import { text } from "./text.js";

export function members(hall, room, leave) {
  const rank = (member) => (isThere(room, member) ? 0 : 1);
  const sorted = [...(room.members ?? [])].sort(
    (one, other) => rank(one) - rank(other) || (one.name ?? "").localeCompare(other.name ?? ""),
  );
  const isOwn = sorted.some(isKingdom);
  return [
    h("h2", null, t("people"), h("span", { class: "dim" }, ` ${sorted.length || ""}`)),
    h("ul", { class: "people" }, sorted.map((member) => row(hall, room, member))),
    isOwn ? null : h("div", { class: "bring" }, h("p", { class: "dim small" }, t("bringText")), copyButton(room)),
    hall.me?.role === "owner" ? h("p", { class: "dim small" }, text(t("inviteText", isOwn ? "kingdom hall invite --room throne" : "kingdom hall invite"))) : null,
    h("button", { type: "button", onclick: leave }, t("leave")),
  ];
}

function row(hall, room, member) {
  const there = isThere(room, member);
  const name = member.name ?? t("somebody");
  return h(
    "li",
    { class: there ? "is-there" : null },
    isKingdom(member) ? crown() : portrait(name, member.userId),
    h("span", { class: "name", title: [name, member.label].filter(Boolean).join(" ") }, name, member.userId === hall.me?.id ? h("span", { class: "dim" }, ` ${t("you")}`) : null, member.label ? h("span", { class: "dim small" }, ` ${member.label}`) : null),
    member.role === "owner" ? h("span", { class: "dim small" }, t("role_owner")) : null,
    member.banned ? h("span", { class: "dim small" }, t("isBanned")) : h("span", { class: "unseen" }, there ? t("isThere") : t("isAway")),
  );
}

/** Return whether a member is there now; the kingdom always is, although others may be called so. */
export function isThere(room, member) {
  return isKingdom(member) || room.present.has(member.userId);
}

function copyButton(room) {
  const label = h("span", null, t("copyLink"));
  const copy = async () => {
    const link = `${location.origin}/#/room/${room.id}`;
    try {
      await navigator.clipboard.writeText(link);
      label.textContent = t("copied");
    } catch {
      label.textContent = link;
    }
  };
  return h("button", { type: "button", onclick: copy }, icon("link"), label);
}
