/** Where in the page one is, kept in the part of the address that no browser sends. */

const PATTERNS = [
  ["room", /^\/room\/([0-9a-f-]{36})(?:\/([0-9A-Z]{26}))?$/i],
  ["join", /^\/join\/(?:([0-9a-f-]{36})\/)?([^/]+)$/i],
  ["search", /^\/search$/],
  ["kingdom", /^\/kingdom$/],
  ["account", /^\/account$/],
];

/** Return the name of the place, what its path names, and its query. */
export function here() {
  const [path, query] = location.hash.slice(1).split("?");
  for (const [name, pattern] of PATTERNS) {
    const found = path.match(pattern);
    if (found) return { name, ids: found.slice(1), query: new URLSearchParams(query) };
  }
  return { name: "home", ids: [], query: new URLSearchParams(query) };
}

export function go(path, { replace = false } = {}) {
  if (replace) {
    history.replaceState(null, "", `#${path}`);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = path;
}

export function onMove(listener) {
  addEventListener("hashchange", listener);
}
