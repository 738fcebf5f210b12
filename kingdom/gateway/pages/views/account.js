/** One's account: settings, sessions, and the way out. */

import { h } from "../dom.js";
import { full, said, t } from "../words.js";
import { languageChoice, themeChoice } from "./settings.js";
import { viewHead } from "./head.js";

export function account(hall, redraw) {
  const list = h("ul", { class: "sessions" });
  const why = h("p", { class: "alert", role: "alert" });

  async function draw() {
    let sessions;
    try {
      sessions = await hall.api.get("/auth/sessions");
    } catch (error) {
      why.textContent = said(error.message);
      return;
    }
    list.replaceChildren(...sessions.reverse().map((session) => row(session)));
  }

  async function end(session) {
    try {
      await hall.api.post(`/auth/sessions/${session.id}/end`);
    } catch (error) {
      why.textContent = said(error.message);
    }
    await draw();
    list.querySelector("button")?.focus();
  }

  function row(session) {
    return h(
      "li",
      null,
      h("div", null, h("strong", null, device(session.agent)), h("span", { class: "dim small" }, t("since", full(session.begunAt)))),
      session.current
        ? h("span", { class: "dim" }, t("thisOne"))
        : h("button", { type: "button", onclick: () => end(session), "aria-label": t("endSession", device(session.agent)) }, t("end")),
    );
  }

  draw();
  const { me } = hall;
  const element = h(
    "main",
    { class: "page", id: "main", tabindex: "-1" },
    viewHead(t("account")),
    h(
      "div",
      { class: "sheet" },
      h("section", null, h("h2", null, me.name), h("p", { class: "dim" }, me.email, " · ", t(`role_${me.role}`)),
        h("button", { type: "button", onclick: () => hall.signOut() }, t("signOut"))),
      h("section", null, h("h2", null, t("look")), themeChoice(), languageChoice(redraw)),
      h("section", null, h("h2", null, t("sessions")), h("p", { class: "dim" }, t("sessionsText")), why, list),
      h("section", null, h("h2", null, t("keys")), h("dl", { class: "keys" }, t("keyList").map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)]))),
    ),
  );
  return { element };
}

/** Return what a browser calls itself, as short as people do. */
function device(agent) {
  const browser = agent.match(/(Firefox|Edg|Chrome|Safari)\/(\d+)/);
  const system = agent.match(/Android|iPhone|iPad|Windows|Mac OS X|Linux/);
  if (!browser) return agent || t("unknownDevice");
  return [browser[1].replace("Edg", "Edge"), browser[2], system && `· ${system[0].replace("Mac OS X", "macOS")}`].filter(Boolean).join(" ");
}
