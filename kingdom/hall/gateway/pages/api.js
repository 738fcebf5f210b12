/** Ask the gateway by HTTP. The token goes into a header of our own requests, and nowhere else. */

const WRONG_PASSWORD = "Invalid credentials";

/** An answer that is a refusal. */
export class Refused extends Error {
  constructor(status, body, retryAfterMs) {
    super(body?.message ?? `HTTP ${status}`);
    this.status = status;
    this.errors = body?.errors ?? [];
    this.retryAfterMs = retryAfterMs;
  }
}

/** No answer. */
export class Away extends Error {}

export class Api {
  /** `ended` is called when a token that was sent is not good any more. */
  constructor(ended) {
    this.token = null;
    this.ended = ended;
  }

  get(path) {
    return this.#ask("GET", path);
  }

  post(path, body) {
    return this.#ask("POST", path, body);
  }

  /** Return a page of a room's messages, and the last message that was deleted behind the cursor, if one was. */
  async messages(room, query) {
    const told = await this.#answer("GET", `/rooms/${room}/messages?${new URLSearchParams(query)}`);
    return { messages: await told.json(), cut: told.headers.get("History-Cut") };
  }

  async #ask(method, path, body) {
    const told = await this.#answer(method, path, body);
    return told.status === 204 ? null : told.json();
  }

  async #answer(method, path, body) {
    const token = this.token;
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    if (body) headers["Content-Type"] = "application/json";
    const sent = { method, headers, body: body && JSON.stringify(body), credentials: "omit", cache: "no-store" };
    let told;
    try {
      told = await fetch(path, { ...sent, signal: AbortSignal.timeout(20_000) });
    } catch (error) {
      throw new Away(error.message);
    }
    if (told.ok) return told;
    const refused = new Refused(
      told.status,
      await told.json().catch(() => null),
      1000 * Number(told.headers.get("Retry-After") ?? 0),
    );
    // A wrong password says nothing of the session.
    if (told.status === 401 && token && token === this.token && refused.message !== WRONG_PASSWORD) this.ended();
    throw refused;
  }
}
