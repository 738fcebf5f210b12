/** What somebody has begun to write, by room: kept in this browser for each account apart until it is sent, so that
 * neither a reload nor the end of a session loses it. */

export class Drafts {
  constructor(user) {
    this.prefix = `kingdom.draft.${user}.`;
  }

  of(roomId) {
    return localStorage.getItem(this.prefix + roomId) ?? "";
  }

  keep(roomId, text) {
    if (!text) localStorage.removeItem(this.prefix + roomId);
    else
      try {
        localStorage.setItem(this.prefix + roomId, text);
      } catch {
        // The storage is full: the text stays in its box.
      }
  }

  /** Forget them all: who signs out leaves nothing half-written behind. */
  clear() {
    for (const key of Object.keys(localStorage)) if (key.startsWith(this.prefix)) localStorage.removeItem(key);
  }
}
