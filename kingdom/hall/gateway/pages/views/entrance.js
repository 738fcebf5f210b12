/** Sign in, or register behind an invitation's link. */

import { Away } from "../api.js";
import { crown, h } from "../dom.js";
import { go } from "../router.js";
import { refusal, t } from "../words.js";
import { languageButton } from "./settings.js";

/** Return the view. `invite` is the code of an invitation; `redraw` draws the page in another language. */
export function entrance(hall, invite, redraw) {
  let registers = invite !== null;
  const place = h("main", { class: "entrance", id: "main" });

  function draw(why = hall.why === "ended" ? t("sessionEnded") : "") {
    const alert = h("p", { class: "alert", role: "alert", id: "why" }, why);
    const email = field("email", t("email"), { type: "email", autocomplete: "username", maxlength: 254 });
    const password = field("password", t("password"), {
      type: "password",
      autocomplete: registers ? "new-password" : "current-password",
      minlength: registers ? 6 : null,
      maxlength: 100,
      "aria-describedby": registers ? "length" : null,
    });
    const length = registers ? h("p", { class: "dim small", id: "length" }, t("passwordLength")) : null;
    const button = h("button", { class: "main" }, registers ? t("register") : t("signIn"));

    async function enter(event) {
      event.preventDefault();
      button.disabled = true;
      alert.textContent = "";
      try {
        const given = [email.querySelector("input").value.trim(), password.querySelector("input").value];
        if (registers) await hall.register(...given, invite);
        else await hall.signIn(...given);
        // The code is used, and stays in no history.
        if (registers) go("/", { replace: true });
      } catch (error) {
        alert.textContent = error instanceof Away ? t("noAnswer") : refusal(error);
        button.disabled = false;
      }
    }

    const other = () => {
      registers = !registers;
      draw("");
    };
    place.replaceChildren(
      h(
        "form",
        { class: "card", onsubmit: enter, "aria-describedby": "why" },
        h("div", { class: "brand" }, crown(), h("h1", null, registers ? t("joinTitle") : t("signInTitle"))),
        h("p", { class: "dim" }, registers ? t(invite ? "joinText" : "registerText") : t("signInText")),
        alert,
        email,
        h("div", { class: "hinted" }, password, length),
        button,
        h("p", { class: "dim small" }, registers ? t("haveAccount") : t("noAccount"), " ",
          h("button", { type: "button", class: "link", onclick: other }, registers ? t("signIn") : t("register"))),
      ),
      h("div", { class: "below" }, languageButton(redraw)),
    );
    place.querySelector("input").focus();
  }

  draw();
  // It stands in the page only now.
  queueMicrotask(() => place.querySelector("input").focus());
  return place;
}

function field(name, label, attributes) {
  return h("label", null, h("span", null, label), h("input", { name, required: true, ...attributes }));
}
