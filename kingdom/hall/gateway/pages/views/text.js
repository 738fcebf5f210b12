/** The text of a message as nodes: links are links, code is code, and everything else is what was written. */

import { h } from "../dom.js";

const PART = /```\n?([\s\S]+?)\n?```\n?|`([^`\n]+)`|(https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]}])/g;

export function text(content) {
  const parts = [];
  let at = 0;
  for (const found of content.matchAll(PART)) {
    parts.push(content.slice(at, found.index));
    const [whole, block, code, url] = found;
    parts.push(block ? h("pre", null, h("code", null, block)) : code ? h("code", null, code) : link(url));
    at = found.index + whole.length;
  }
  parts.push(content.slice(at));
  return parts.filter((part) => part !== "");
}

/** Return a link, which tells the other side nothing of us. */
export function link(url) {
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, url);
}

/** Return whether a text is an address that may be linked. */
export function isWebAddress(content) {
  try {
    return ["http:", "https:"].includes(new URL(content).protocol);
  } catch {
    return false;
  }
}
