/** One's account: settings, sessions, and the way out. */

import { h } from "../dom.js";
import { go, here } from "../router.js";
import { full, refusal, said, t } from "../words.js";
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

  /** Sign out; whoever signs in next does not begin here. */
  async function leave() {
    await hall.signOut();
    if (here().name === "account") go("/", { replace: true });
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
        h("button", { type: "button", onclick: leave }, t("signOut"))),
      h("section", null, h("h2", null, t("look")), themeChoice(), languageChoice(redraw)),
      passwordForm(hall, draw),
      h("section", null, h("h2", null, t("sessions")), h("p", { class: "dim" }, t("sessionsText")), why, list),
      h("section", null, h("h2", null, t("keys")), h("dl", { class: "keys" }, t("keyList").map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)]))),
    ),
  );
  return { element };
}

/** Return a form to change the password; `changed` is called when the other sessions are over. */
function passwordForm(hall, changed) {
  const why = h("p", { class: "alert", role: "alert" });
  const done = h("p", { class: "dim small", role: "status" });
  const field = (name, label, more) =>
    h("label", null, h("span", null, label), h("input", { type: "password", name, required: true, maxlength: 100, ...more }));
  const hint = h("p", { class: "dim small", id: "new-length" }, t("passwordLength"));
  const button = h("button", null, t("changePassword"));
  async function change(event) {
    event.preventDefault();
    why.textContent = done.textContent = "";
    button.disabled = true;
    try {
      await hall.api.post("/auth/password", Object.fromEntries(new FormData(form)));
      form.reset();
      done.textContent = t("passwordChanged");
      await changed();
    } catch (error) {
      section.hidden = error.status === 404;
      why.textContent = error.message === "Invalid credentials" ? t("passwordWrong") : refusal(error);
    }
    button.disabled = false;
  }
  const form = h(
    "form",
    { class: "password", onsubmit: change },
    // For programs that keep passwords.
    h("input", { type: "text", autocomplete: "username", value: hall.me.email, hidden: true }),
    field("current", t("passwordNow"), { autocomplete: "current-password" }),
    field("new", t("passwordNew"), { autocomplete: "new-password", minlength: 6, "aria-describedby": "new-length" }),
    hint,
    why,
    done,
    button,
  );
  const section = h("section", null, h("h2", null, t("password")), h("p", { class: "dim" }, t("passwordText")), form);
  return section;
}

/** Return what a browser calls itself, as short as people do. */
function device(agent) {
  const browser = agent.match(/(Firefox|Edg|Chrome|Safari)\/(\d+)/);
  const system = agent.match(/Android|iPhone|iPad|Windows|Mac OS X|Linux/);
  if (!browser) return agent || t("unknownDevice");
  return [browser[1].replace("Edg", "Edge"), browser[2], system && `· ${system[0].replace("Mac OS X", "macOS")}`].filter(Boolean).join(" ");
}
