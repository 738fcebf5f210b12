/** A room as this page knows it: its messages by id, and from where to where they are without a gap. */

/** So many messages are kept of a room that nobody has opened: more than a page. */
const MOST_UNOPENED = 200;

export class Room {
  constructor(listed) {
    this.messages = new Map();
    this.present = new Set();
    this.typing = new Map();
    this.members = null;
    /** Whether the messages reach back to the room's beginning, and up to this moment. */
    this.isWhole = false;
    this.isLive = false;
    /** Whether older messages are shown on purpose. */
    this.isOld = false;
    /** The message up to which there is no gap while the room is not live. */
    this.upTo = null;
    /** The last message that was deleted because it was old, behind which this page had been away. */
    this.cut = null;
    this.removed = new Set();
    /** Up to where one had read when the room was opened: the line "new" stands there. */
    this.newFrom = null;
    this.hasJoined = false;
    this.update(listed);
  }

  update(listed) {
    const { id, name, kind, unread, lastMessageId, lastMessageAt, createdAt } = listed;
    Object.assign(this, { id, name, kind, unread, lastMessageAt: lastMessageAt ?? createdAt, lastMessageId });
  }

  /** Take in a message from wherever it comes; return whether it is new here. */
  take(message) {
    const known = this.messages.get(message.id);
    const gone = message.removed || known?.removed || this.removed.has(message.id);
    this.messages.set(message.id, gone ? { ...message, content: "", removed: true } : message);
    if (message.removes) this.#blank(message.removes);
    if (this.messages.size > MOST_UNOPENED && !this.isLive && this.upTo === null) this.messages.clear();
    return !known;
  }

  #blank(id) {
    this.removed.add(id);
    const message = this.messages.get(id);
    if (message) this.messages.set(id, { ...message, content: "", removed: true });
  }

  /** Take in the newest page of the history. */
  begin(page, isWhole) {
    page.forEach((message) => this.take(message));
    this.isWhole = isWhole;
    this.goLive();
  }

  /** Forget what was read, and begin with pages around one message. */
  beginAround(page, isWhole) {
    this.forget();
    page.forEach((message) => this.take(message));
    this.isWhole = isWhole;
    this.isOld = true;
    this.upTo = page.at(-1)?.id ?? null;
  }

  /** Take in what comes next after `upTo`. */
  goOn(page, cut, isLast) {
    page.forEach((message) => this.take(message));
    this.upTo = page.at(-1)?.id ?? this.upTo;
    this.cut = cut ?? this.cut;
    if (isLast) this.goLive();
  }

  forget() {
    Object.assign(this, { messages: new Map(), isLive: false, isOld: false, upTo: null, isWhole: false });
    return this;
  }

  goLive() {
    this.isLive = true;
    this.isOld = false;
    this.upTo = null;
  }

  /** Note that the connection is gone: what comes in from now on may follow a gap. */
  loseTouch() {
    this.hasJoined = false;
    this.present.clear();
    this.typing.clear();
    if (!this.isLive && this.upTo === null) this.messages.clear();
    if (this.isLive) {
      this.upTo = this.newest()?.id ?? null;
      this.isLive = false;
    }
  }

  /** Return the messages without a gap, the oldest first. */
  sorted() {
    const all = [...this.messages.values()].filter((message) => this.isLive || message.id <= (this.upTo ?? ""));
    return all.sort((one, other) => (one.id < other.id ? -1 : 1));
  }

  oldest() {
    return this.sorted()[0];
  }

  newest() {
    return this.sorted().at(-1);
  }
}
