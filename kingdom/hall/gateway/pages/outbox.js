/** What was written and is not in the history yet. It lies in this browser's storage, for each account apart, so that
 * neither a lost connection nor a reload loses it, and every tab of the account shows it and can send it. Each message
 * keeps its clientMsgId: sent twice, it is stored once. */

import { newUuid } from "./ids.js";

const MOST_TRIES = 5;
const KEPT_MS = 86_400_000;
/** Answers that a further try cannot change. */
const FINAL = new Set(["Invalid message format", "Not a member of this room"]);
/** What is being sent belongs to them: the tab that sent it may be gone. */
const TO_SEND = new Set(["waiting", "sending"]);

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
    this.onStorage = ({ key }) => key?.startsWith(this.prefix) && this.#hear(key);
    addEventListener("storage", this.onStorage);
    this.#read();
    for (const item of this.#items.values()) if (item.state === "sending") item.state = "waiting";
  }

  /** Take over what lies in the storage, where other tabs write too. */
  #read() {
    const keys = new Set(Object.keys(localStorage).filter((key) => key.startsWith(this.prefix)));
    for (const item of this.#items.values()) if (item.isKept) keys.add(item.key);
    for (const key of [...keys].sort()) this.#load(key);
  }

  /** Take over a message as it lies in the storage; return its room. */
  #load(key) {
    const known = [...this.#items.values()].find((item) => item.key === key);
    const text = localStorage.getItem(key);
    const item = parsed(text);
    if (!item?.clientMsgId || (item.state === "accepted" && Date.now() - item.at > KEPT_MS)) {
      if (text !== null) localStorage.removeItem(key);
      if (known) this.#items.delete(known.clientMsgId);
      return known?.roomId;
    }
    this.#items.set(item.clientMsgId, Object.assign(known ?? { tries: 0 }, item, { key, isKept: true, error: item.error }));
    this.#last = Math.max(this.#last, item.at);
    return item.roomId;
  }

  /** Another tab has written, sent or settled a message. */
  #hear(key) {
    const roomId = this.#load(key);
    if (!roomId) return;
    this.changed(roomId);
    this.drain(roomId);
  }

  add(roomId, content) {
    this.#last = Math.max(this.#last + 1, Date.now());
    const clientMsgId = newUuid();
    const key = `${this.prefix}${String(this.#last).padStart(16, "0")}.${clientMsgId}`;
    const item = { key, roomId, clientMsgId, content, at: this.#last, state: "waiting", tries: 0 };
    this.#items.set(item.clientMsgId, item);
    this.#keep(item);
    this.changed(roomId);
    this.drain(roomId);
  }

  /** Return what a room has not got yet, in the order in which it was written. */
  of(roomId) {
    return [...this.#items.values()].filter((item) => item.roomId === roomId).sort((one, other) => one.at - other.at);
  }

  /** Return how many messages wait in all rooms. */
  waiting() {
    return [...this.#items.values()].filter((item) => TO_SEND.has(item.state)).length;
  }

  /** Forget messages that are in the history now. */
  settle(messages) {
    for (const { clientMsgId } of messages) this.#drop(clientMsgId);
  }

  retry(clientMsgId) {
    const item = this.#items.get(clientMsgId);
    if (!item) return;
    Object.assign(item, { tries: 0, error: undefined });
    this.#move(item, "waiting");
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

  /** Send what waits in a room, while no other tab does. */
  async drain(roomId) {
    if (this.#busy.has(roomId) || this.#rests.has(roomId) || !this.isUp() || !this.#next(roomId)) return;
    this.#busy.add(roomId);
    const pause = await alone(`${this.prefix}${roomId}`, () => this.#send(roomId));
    this.#busy.delete(roomId);
    if (pause) this.#rest(roomId, pause);
    else this.drain(roomId);
  }

  /** Send one message after the other: the next goes when the topic has the one before. Return how long to rest. */
  async #send(roomId) {
    this.#read();
    let pause = 0;
    for (let item; !pause && this.isUp() && (item = this.#next(roomId)); ) pause = await this.#try(item);
    return pause;
  }

  #next(roomId) {
    return this.of(roomId).find((item) => TO_SEND.has(item.state));
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
      return 0;
    }
    if (answer.retryAfterMs) {
      this.#move(item, "waiting");
      return Math.min(answer.retryAfterMs, 60_000);
    }
    if (FINAL.has(answer.error) || ++item.tries >= MOST_TRIES) {
      item.error = answer.error;
      this.#move(item, "failed");
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
    this.#read();
    this.drainAll();
  }

  close() {
    removeEventListener("storage", this.onStorage);
    for (const timer of this.#rests.values()) clearTimeout(timer);
    this.isUp = () => false;
  }

  #move(item, state) {
    item.state = state;
    this.#keep(item);
    this.changed(item.roomId);
  }

  #keep(item) {
    const { key, roomId, clientMsgId, content, at, state, error } = item;
    // Another tab may have settled it meanwhile.
    if (!this.#items.has(clientMsgId) || (item.isKept && localStorage.getItem(key) === null)) return;
    try {
      localStorage.setItem(key, JSON.stringify({ roomId, clientMsgId, content, at, state, error }));
      item.isKept = true;
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

/** Do something while no other tab does; without TLS, where browsers keep no locks, it may do so too. */
function alone(name, work) {
  return navigator.locks ? navigator.locks.request(name, work) : work();
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
