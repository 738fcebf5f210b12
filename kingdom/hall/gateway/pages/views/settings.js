/** What each chooses on a device: language and theme. */

import { h } from "../dom.js";
import { choose, language, NAMES, t } from "../words.js";

const THEME = "kingdom.theme";

/** Return a button that changes to the other language. */
export function languageButton(redraw) {
  const other = language() === "ko" ? "en" : "ko";
  const change = () => {
    choose(other);
    redraw();
  };
  return h("button", { type: "button", class: "link", lang: other, onclick: change }, NAMES[other]);
}

/** Return the choice of a language. */
export function languageChoice(redraw) {
  const change = (name) => {
    choose(name);
    redraw();
  };
  return choice("language", t("language"), Object.entries(NAMES), language(), change);
}

/** Return the choice between light, dark, and what the system says. */
export function themeChoice() {
  const change = (name) => {
    if (name) {
      localStorage.setItem(THEME, name);
      document.documentElement.dataset.theme = name;
    } else {
      localStorage.removeItem(THEME);
      delete document.documentElement.dataset.theme;
    }
  };
  const themes = [["", t("system")], ["light", t("light")], ["dark", t("dark")]];
  return choice("theme", t("theme"), themes, localStorage.getItem(THEME) ?? "", change);
}

function choice(name, label, options, chosen, change) {
  return h(
    "fieldset",
    { class: "choice" },
    h("legend", null, label),
    options.map(([value, text]) =>
      h(
        "label",
        null,
        h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => change(value) }),
        h("span", null, text),
      ),
    ),
  );
}
