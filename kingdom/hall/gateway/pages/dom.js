/** Make elements. Text goes in as text nodes only: nothing that people write is ever parsed as markup. */

const SVG = "http://www.w3.org/2000/svg";
const PATHS = {
  back: "M15 5l-7 7 7 7",
  check: "M5 12.500l4.500 4.500L19 7",
  close: "M6 6l12 12M18 6L6 18",
  down: "M12 5v14M6 13l6 6 6-6",
  gear: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  link: "M10 14a4 4 0 005.7 0l3-3a4 4 0 00-5.7-5.7l-1 1M14 10a4 4 0 00-5.7 0l-3 3a4 4 0 005.7 5.7l1-1",
  people: "M9 11a3 3 0 100-6 3 3 0 000 6zM3.5 19a5.5 5.5 0 0111 0M16 5.4a3 3 0 010 5.2M17.500 14a5.500 5.500 0 013 5",
  plus: "M12 5v14M5 12h14",
  search: "M11 18a7 7 0 100-14 7 7 0 000 14zM20 20l-4-4",
  send: "M5 12h13M12.500 6l6 6-6 6",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12",
};

/** Return an element. `on…` are listeners, null and false leave an attribute out. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child != null && child !== false));
  return element;
}

/** Return a small picture that screen readers pass over. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }))
    svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** Return a button that shows a picture and is called by a text. */
export function iconButton(name, label, onclick, more) {
  return h("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick, ...more }, icon(name));
}

/** Return a link that is seen when it has the focus, and leads to an element. The address stays as it is. */
export function skipLink(id, label) {
  const go = (event) => {
    event.preventDefault();
    document.getElementById(id)?.focus();
  };
  return h("a", { class: "skip", href: `#${id}`, onclick: go }, label);
}

/** Let a screen reader say something. */
export function announce(text) {
  const told = document.getElementById("told");
  told.append(h("p", null, text));
  while (told.childElementCount > 5) told.firstChild.remove();
}

/** Put what a render returns into an element, as long as it stands in the page. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(9).filter((child) => child != null && child !== false));
}

/** Return the first letter of a name, and which of the muted tints stands for it. */
export function portrait(name, id) {
  let sum = 0;
  for (const letter of id ?? name) sum = (sum * 31 + letter.codePointAt(0)) % 997;
  const first = [...name.trim()][0] ?? "?";
  return h("span", { class: `portrait tint-${sum % 6}`, "aria-hidden": "true" }, first.toUpperCase());
}

/** Return the kingdom's own portrait. */
export function crown() {
  return h("span", { class: "portrait own", "aria-hidden": "true" }, crownShape());
}

/** Return the mark of what is the kingdom's. */
export function crownMark(label) {
  return h("span", { class: "own-mark", role: "img", "aria-label": label, title: label }, crownShape());
}

function crownShape() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 32 32");
  svg.setAttribute("class", "crown");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", "M7 22.500V11l5 4.500L16 8l4 7.500L25 11v11.500z");
  svg.append(path);
  return svg;
}
