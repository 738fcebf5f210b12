/** Ids. `crypto.randomUUID` is missing where a hall in the house is served without TLS. */

/** Return a random UUID of version 4. */
export function newUuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** Return the smallest id of a message that is greater than this one: a page before it ends with this one. */
export function nextId(id) {
  const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
  const last = letters.indexOf(id.at(-1));
  return last < letters.length - 1 ? id.slice(0, -1) + letters[last + 1] : nextId(id.slice(0, -1)) + "0";
}
