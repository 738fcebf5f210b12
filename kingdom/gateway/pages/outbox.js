/** What was written and is not in the history yet. It lies in this browser's storage, for each account apart, so that
 * neither a lost connection nor a reload loses it. Each message keeps its clientMsgId: sent twice, it is stored once. */

import { newUuid } from "./ids.js";

const MOST_TRIES = 5;
const KEPT_MS = 86_400_000;
/** Answers that a further try cannot change. */
const FINAL = new Set(["Invalid message format", "Not a member of this room"]);

export class Outbox {
  #items = new Map();
  #busy = new Set();
  #rests = new Map();
  #last = 0;

  /** `send` returns the gateway's answer, and throws when there is none; `changed` hears of a room's messages. */
  constructor(user, send, isUp, changed) {
    this.prefix = `kingdom.outbox.${user}.`;
    this.send = send;
    this.isUp = isUp;
    this.changed = changed;
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(this.prefix));
    for (const key of keys.sort()) this.#load(key);
  }

  #load(key) {
    const item = parsed(localStorage.getItem(key));
    if (!item?.clientMsgId || (item.state === "accepted" && Date.now() - item.at > KEPT_MS)) {
      localStorage.removeItem(key);
      return;
    }
    this.#items.set(item.clientMsgId, { ...item, key, tries: 0, state: item.state ?? "waiting" });
    this.#last = Math.max(this.#last, item.at);
  }

  add(roomId, content) {
    this.#last = Math.max(this.#last + 1, Date.now());
    const key = this.prefix + String(this.#last).padStart(16, "0");
    const item = { key, roomId, clientMsgId: newUuid(), content, at: this.#last, state: "waiting", tries: 0 };
    this.#items.set(item.clientMsgId, item);
    this.#keep(item);
    this.changed(roomId);
    this.drain(roomId);
  }

  /** Return what a room has not got yet, in the order in which it was written. */
  of(roomId) {
    return [...this.#items.values()].filter((item) => item.roomId === roomId);
  }

  /** Return how many messages wait in all rooms. */
  waiting() {
    return [...this.#items.values()].filter((item) => item.state === "waiting" || item.state === "sending").length;
  }

  /** Forget messages that are in the history now. */
  settle(messages) {
    for (const { clientMsgId } of messages) this.#drop(clientMsgId);
  }

  retry(clientMsgId) {
    const item = this.#items.get(clientMsgId);
    if (!item) return;
    Object.assign(item, { state: "waiting", tries: 0, error: undefined });
    this.#keep(item);
    this.changed(item.roomId);
    this.drain(item.roomId);
  }

  discard(clientMsgId) {
    const item = this.#items.get(clientMsgId);
    this.#drop(clientMsgId);
    if (item) this.changed(item.roomId);
  }

  /** Send what waits, in every room. */
  drainAll() {
    for (const roomId of new Set([...this.#items.values()].map((item) => item.roomId))) this.drain(roomId);
  }

  /** Send what waits in a room, one after the other: the next goes when the topic has the one before. */
  async drain(roomId) {
    if (this.#busy.has(roomId) || this.#rests.has(roomId)) return;
    this.#busy.add(roomId);
    let pause = 0;
    for (let item; !pause && this.isUp() && (item = this.#next(roomId)); ) pause = await this.#try(item);
    this.#busy.delete(roomId);
    if (pause) this.#rest(roomId, pause);
  }

  #next(roomId) {
    return this.of(roomId).find((item) => item.state === "waiting");
  }

  /** Send a message; return for how many milliseconds to rest before the next try. */
  async #try(item) {
    this.#move(item, "sending");
    let answer;
    try {
      answer = await this.send({ roomId: item.roomId, clientMsgId: item.clientMsgId, content: item.content });
    } catch {
      // Nobody knows whether it arrived: it goes again under its own id.
      this.#move(item, "waiting");
      return 1000;
    }
    if (answer.status === "ACCEPTED") {
      this.#move(item, "accepted");
      this.#keep(item);
      return 0;
    }
    if (answer.retryAfterMs) {
      this.#move(item, "waiting");
      return Math.min(answer.retryAfterMs, 60_000);
    }
    if (FINAL.has(answer.error) || ++item.tries >= MOST_TRIES) {
      item.error = answer.error;
      this.#move(item, "failed");
      this.#keep(item);
      return 0;
    }
    this.#move(item, "waiting");
    return 500 * 2 ** item.tries;
  }

  #rest(roomId, pause) {
    const timer = setTimeout(() => {
      this.#rests.delete(roomId);
      this.drain(roomId);
    }, pause);
    this.#rests.set(roomId, timer);
  }

  /** Forget rests: the connection is new. */
  wake() {
    for (const timer of this.#rests.values()) clearTimeout(timer);
    this.#rests.clear();
    this.drainAll();
  }

  close() {
    for (const timer of this.#rests.values()) clearTimeout(timer);
    this.isUp = () => false;
  }

  #move(item, state) {
    item.state = state;
    this.changed(item.roomId);
  }

  #keep({ key, roomId, clientMsgId, content, at, state, error }) {
    if (!this.#items.has(clientMsgId)) return;
    try {
      localStorage.setItem(key, JSON.stringify({ roomId, clientMsgId, content, at, state, error }));
    } catch {
      // The storage is full: the message is still sent, and a reload would lose it.
    }
  }

  #drop(clientMsgId) {
    const item = this.#items.get(clientMsgId);
    if (item) localStorage.removeItem(item.key);
    this.#items.delete(clientMsgId);
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
