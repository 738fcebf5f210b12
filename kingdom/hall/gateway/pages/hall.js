/** What happens in the hall: who is signed in, the rooms, and how they follow what the gateway tells. */

import { Api, Away, Refused } from "./api.js";
import { Drafts } from "./drafts.js";
import { nextId } from "./ids.js";
import { Line } from "./line.js";
import { Outbox } from "./outbox.js";
import { THRONE_ROOM } from "./own.js";
import { Room } from "./room.js";
import { Store } from "./store.js";
import { sentence, t } from "./words.js";

const TOKEN = "kingdom.token";
const ME = "kingdom.me";
const PAGE = 50;
const LONG_PAGE = 100;
/** Rooms that tell of news by themselves; the others are seen when the list is read again. */
const MOST_JOINED = 100;
const LIST_MS = 10_000;
/** A page that nobody looks at reads the list so much less often. */
const HIDDEN_TICKS = 6;
const SOON_MS = 100;
/** The picture that the gateway gives of the kingdom may be a second old; after so long it is newer than what was just heard. */
const PICTURE_MS = 1_200;
const TYPING_MS = 6_000;
const AGAIN_MS = 2_000;
const ORDER_MS = 15_000;

export class Hall extends Store {
  constructor() {
    super();
    this.api = new Api(() => this.#leave("ended"));
    this.me = null;
    this.rooms = new Map();
    this.current = null;
    /** connecting, up, down */
    this.link = "connecting";
    /** Why nobody is signed in: "", ended. */
    this.why = "";
    /** Whether the list of rooms was read. */
    this.isListed = false;
    /** What the kingdom does; false for who may not know, null when nobody has told. */
    this.kingdom = null;
    this.line = null;
    this.outbox = null;
    this.drafts = null;
    addEventListener("storage", (event) => this.#otherTab(event));
    addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.look());
  }

  // Who is signed in

  /** Go on with the session of this browser, if there is one. */
  async resume() {
    this.api.token = localStorage.getItem(TOKEN);
    if (!this.api.token) return;
    try {
      this.#enter(await this.api.get("/auth/me"));
    } catch (error) {
      const known = localStorage.getItem(ME);
      if (known && !(error instanceof Refused && error.status === 401)) this.#enter(JSON.parse(known));
    }
  }

  async signIn(email, password) {
    const { accessToken } = await this.api.post("/auth/login", { email, password });
    this.api.token = accessToken;
    const me = await this.api.get("/auth/me");
    localStorage.setItem(TOKEN, accessToken);
    this.#enter(me);
  }

  async register(email, password, invite) {
    await this.api.post("/auth/register", { email, password, ...(invite ? { invite } : {}) });
    await this.signIn(email, password);
  }

  async signOut() {
    // At once: the end of the session may be heard before the answer.
    this.drafts?.clear();
    try {
      await this.api.post("/auth/logout");
    } catch (error) {
      if (!(error instanceof Refused || error instanceof Away)) throw error;
    }
    this.#leave("");
  }

  #enter(me) {
    this.me = me;
    this.why = "";
    localStorage.setItem(ME, JSON.stringify(me));
    this.drafts = new Drafts(me.id);
    this.outbox = new Outbox(
      me.id,
      (message) => this.line.call("sendMessage", message),
      () => this.line?.isUp,
      (room) => (this.tell(`room ${room}`), this.tell("outbox")),
    );
    this.line = new Line(this.api.token, {
      up: () => this.#up(),
      down: () => this.#down(),
      ended: () => this.#leave("ended"),
      newMessage: (message) => this.#hear(message),
      presence: ({ roomId, userId, on }) => this.#hearPresence(roomId, userId, on),
      typing: ({ roomId, userId, on }) => this.#hearTyping(roomId, userId, on),
      read: ({ roomId, userId, lastReadMessageId }) => this.#hearRead(roomId, userId, lastReadMessageId),
      membership: ({ roomId, userId }) => this.#hearMembership(roomId, userId),
    });
    let ticks = 0;
    this.lists = setInterval(() => (this.isAttended || ++ticks % HIDDEN_TICKS === 0) && this.look(), LIST_MS);
    this.look();
    this.tell("me");
  }

  #leave(why) {
    localStorage.removeItem(TOKEN);
    localStorage.removeItem(ME);
    clearInterval(this.lists);
    clearTimeout(this.again);
    this.line?.close();
    this.outbox?.close();
    Object.assign(this, { me: null, line: null, outbox: null, drafts: null, kingdom: null, current: null, again: null, why, link: "connecting" });
    this.api.token = null;
    this.rooms = new Map();
    this.isListed = false;
    this.tell("me");
  }

  /** Another tab has signed in or out. */
  #otherTab(event) {
    if (event.key === TOKEN && event.newValue !== this.api.token) location.reload();
  }

  // The connection

  async #up() {
    this.link = "up";
    this.tell("link");
    await this.look();
    this.outbox?.wake();
  }

  #down() {
    this.link = "down";
    for (const room of this.rooms.values()) {
      room.loseTouch();
      this.tell(`room ${room.id}`);
    }
    this.tell("link");
  }

  /** Read the list of rooms and what the kingdom does, and follow the rooms that are new in it. */
  async look() {
    const me = this.me;
    if (!me) return;
    try {
      const listed = await this.api.get("/rooms");
      if (me === this.me) this.#list(listed);
    } catch (error) {
      if (error instanceof Away || error.status >= 429) return;
      throw error;
    }
    this.#follow();
    this.#lookAtKingdom();
  }

  /** Ask what the kingdom does, as owners and people of the throne room may. */
  async #lookAtKingdom() {
    const me = this.me;
    const told = me?.role === "owner" || this.rooms.has(THRONE_ROOM) ? await this.#askKingdom() : false;
    if (me !== this.me) return;
    this.kingdom = told;
    this.tell("kingdom");
  }

  /** Look at the kingdom now, unless it is about to be looked at, and once more when it has said nothing for a moment. */
  #lookAtKingdomSoon() {
    if (!this.again) this.#lookAtKingdom();
    clearTimeout(this.again);
    this.again = setTimeout(() => ((this.again = null), this.#lookAtKingdom()), PICTURE_MS);
  }

  async #askKingdom() {
    try {
      return await this.api.get("/kingdom");
    } catch (error) {
      return error instanceof Refused && error.status < 429 ? false : this.kingdom;
    }
  }

  #list(listed) {
    const known = this.rooms;
    this.rooms = new Map();
    for (const row of listed) {
      const room = known.get(row.id) ?? new Room(row);
      // What came in while the answer was on its way is newer than the answer.
      const isBehind = (row.lastMessageId ?? "") < (room.lastMessageId ?? "");
      const isSeen = row.lastMessageId && row.lastMessageId <= (room.seen ?? "");
      if (!isBehind) room.update(isSeen ? { ...row, unread: 0 } : row);
      this.rooms.set(room.id, room);
    }
    this.isListed = true;
    this.tell("rooms");
    if (this.current && !this.rooms.has(this.current)) this.tell(`room ${this.current}`);
  }

  #follow() {
    if (!this.line?.isUp) return;
    const rooms = [...this.rooms.values()];
    const near = rooms.slice(0, MOST_JOINED).concat(rooms.filter((room) => room.id === this.current));
    for (const room of new Set(near)) if (!room.hasJoined) this.#join(room);
  }

  /** Join first, and read what was missed then: what comes in meanwhile arrives by itself. */
  async #join(room) {
    room.hasJoined = true;
    room.joining = this.line.call("joinRoom", { roomId: room.id });
    await this.#load(room);
  }

  /** Read what is missing of the open room, once it is joined; try again where that fails. */
  async #load(room) {
    const line = this.line;
    try {
      const answer = await room.joining;
      if (!answer.success) throw new Error(answer.error);
      if (room.id === this.current && !room.isLive && !room.isOld && !room.isReading) {
        room.isReading = true;
        await (room.upTo === null ? this.#begin(room) : this.#catchUp(room)).finally(() => (room.isReading = false));
      }
    } catch {
      room.hasJoined = false;
      setTimeout(() => line === this.line && this.rooms.has(room.id) && this.#follow(), AGAIN_MS);
    }
    this.tell(`room ${room.id}`);
  }

  async #begin(room) {
    const { messages } = await this.api.messages(room.id, { limit: PAGE });
    room.begin(messages, messages.length < PAGE);
    this.#took(room, messages);
  }

  /** Read all pages after the last message without a gap. */
  async #catchUp(room) {
    while (!room.isLive) {
      const { messages, cut } = await this.api.messages(room.id, { limit: LONG_PAGE, after: room.upTo });
      room.goOn(messages, cut, messages.length < LONG_PAGE);
      this.#took(room, messages);
    }
  }

  #took(room, messages) {
    this.outbox?.settle(messages.filter((message) => message.senderId === this.me?.id));
    this.tell(`room ${room.id}`);
  }

  // A room

  /** Go into a room: from now on it is followed, with its history, around a message if one is named. */
  async open(id, message) {
    this.current = id;
    const room = this.rooms.get(id);
    this.tell("rooms");
    if (!room) return;
    if (room.unread && !room.newFrom) room.newFrom = await this.#firstUnread(room);
    else this.#readMembers(room);
    const isThere = room.messages.has(message) && (room.isLive || message <= room.upTo);
    if (message && !isThere) await this.#around(room, message);
    else if (room.hasJoined) await this.#load(room);
    else this.#follow();
    this.tell(`room ${id}`);
  }

  close(id) {
    const room = this.rooms.get(id);
    if (room) room.newFrom = null;
    if (this.current === id) this.current = null;
  }

  async #around(room, message) {
    const before = await this.api.messages(room.id, { limit: PAGE, before: nextId(message) });
    const after = await this.api.messages(room.id, { limit: PAGE, after: message });
    room.beginAround([...before.messages, ...after.messages], before.messages.length < PAGE);
    if (after.messages.length < PAGE && room.hasJoined) room.goLive();
    this.#took(room, []);
  }

  async #readMembers(room) {
    try {
      room.members = await this.api.get(`/rooms/${room.id}/members`);
    } catch {
      return;
    }
    this.tell(`room ${room.id}`);
    this.tell("rooms");
  }

  async #firstUnread(room) {
    await this.#readMembers(room);
    const mine = room.members?.find((member) => member.userId === this.me?.id);
    return mine ? (mine.lastReadMessageId ?? "") : null;
  }

  /** Read the page before the oldest message. */
  async older(room) {
    const oldest = room.oldest();
    if (room.isWhole || !oldest || room.isReading) return;
    room.isReading = true;
    try {
      const { messages } = await this.api.messages(room.id, { limit: PAGE, before: oldest.id });
      messages.forEach((message) => room.take(message));
      room.isWhole = messages.length < PAGE;
      this.#took(room, messages);
    } finally {
      room.isReading = false;
    }
  }

  /** Read the page after the newest message, where that is not the room's newest. */
  async newer(room) {
    if (room.isLive || room.upTo === null || room.isReading || !room.hasJoined) return;
    room.isReading = true;
    try {
      const { messages, cut } = await this.api.messages(room.id, { limit: PAGE, after: room.upTo });
      room.goOn(messages, cut, messages.length < PAGE);
      this.#took(room, messages);
    } finally {
      room.isReading = false;
    }
  }

  /** Leave what is old, and show the newest. */
  async toNewest(room) {
    if (!room.isLive) await this.#begin(room.forget());
  }

  async addRoom(name) {
    const room = await this.api.post("/rooms", { name });
    await this.look();
    return room.id;
  }

  async joinRoom(id, invite) {
    await this.api.post(`/rooms/${id}/join`, invite ? { invite } : {});
    await this.look();
  }

  async leaveRoom(id) {
    await this.api.post(`/rooms/${id}/leave`);
    this.rooms.delete(id);
    await this.look();
  }

  remove(room, message) {
    return this.api.post(`/rooms/${room.id}/messages/${message.id}/remove`);
  }

  /** Order something of the king; return when it is done, and throw what stands in its way. */
  async order(action, target) {
    const { orderId } = await this.api.post("/kingdom/orders", { action, target });
    for (const began = Date.now(); Date.now() - began < ORDER_MS; ) {
      const { code, outcome, says } = await this.api.get(`/kingdom/orders/${orderId}`);
      if (code === "refused") throw new Error(sentence(outcome, says));
      if (code) return this.look();
      await new Promise((done) => setTimeout(done, AGAIN_MS / 4));
    }
    throw new Error(t("orderWaits"));
  }

  async restart(role) {
    await this.api.post(`/kingdom/roles/${role}/restart`);
    for (const row of this.kingdom?.roles ?? []) row.restarting ||= row.name === role;
    this.tell("kingdom");
  }

  mayRemove(message) {
    return !message.removed && !message.removes && (message.senderId === this.me?.id || this.me?.role === "owner");
  }

  /** Tell that somebody types, or no longer does. */
  typing(room, on) {
    this.line?.call("typing", { roomId: room.id, on }).catch(() => {});
  }

  /** Note that the newest message of the open room has been seen. */
  async sawNewest(room) {
    const newest = room.newest();
    if (!newest || !room.isLive || newest.id <= (room.seen ?? "") || !this.isAttended) return;
    room.seen = newest.id;
    const hadUnread = room.unread;
    room.unread = 0;
    if (hadUnread) this.tell("rooms");
    try {
      await this.api.post(`/rooms/${room.id}/read`, { lastReadMessageId: newest.id });
    } catch {
      room.seen = "";
    }
  }

  get isAttended() {
    return document.visibilityState === "visible";
  }

  nameOf(room, user) {
    return user === this.me?.id ? this.me.name : room.members?.find((member) => member.userId === user)?.name;
  }

  // What the gateway tells

  #hear(message) {
    const room = this.rooms.get(message.roomId);
    if (!room) return;
    const isNew = room.take(message);
    room.typing.delete(message.senderId);
    if (message.senderId === this.me?.id) this.outbox?.settle([message]);
    if (room.id === this.current && !this.isAttended) room.newFrom ??= room.seen;
    if (isNew && message.id > (room.lastMessageId ?? "")) {
      room.lastMessageId = message.id;
      room.lastMessageAt = message.createdAt;
      const isCounted = message.senderId !== this.me?.id && typeof room.unread === "number";
      if (isCounted) room.unread = room.unread >= 1000 ? "1000+" : room.unread + 1;
      if (!message.removes) this.tell("heard");
      this.heard = { room, message };
    }
    this.rooms = new Map([...this.rooms].sort(([, one], [, other]) => (one.lastMessageAt > other.lastMessageAt ? -1 : 1)));
    this.tell("rooms");
    this.tell(`room ${room.id}`);
    if (message.type === "SYSTEM") this.#lookAtKingdomSoon();
  }

  #hearPresence(roomId, user, on) {
    const room = this.rooms.get(roomId);
    if (!room) return;
    if (on) room.present.add(user);
    else room.present.delete(user);
    this.tell(`room ${roomId}`);
  }

  /** Somebody is a member now, or no longer. */
  #hearMembership(roomId, user) {
    const room = this.rooms.get(roomId);
    if (room?.members) this.#readMembers(room);
    // Many may come at once: they are read together.
    if (user !== this.me?.id) return;
    this.soon ??= setTimeout(() => ((this.soon = null), this.look()), SOON_MS);
    // What is said in a new room before it is joined is not heard.
    this.#lookAtKingdomSoon();
  }

  #hearTyping(roomId, user, on) {
    const room = this.rooms.get(roomId);
    if (!room || user === this.me?.id) return;
    clearTimeout(room.typing.get(user));
    if (on) {
      const over = () => (room.typing.delete(user), this.tell(`room ${roomId}`));
      room.typing.set(user, setTimeout(over, TYPING_MS));
    } else room.typing.delete(user);
    this.tell(`room ${roomId}`);
  }

  #hearRead(roomId, user, lastReadMessageId) {
    const room = this.rooms.get(roomId);
    if (!room) return;
    const member = room.members?.find((one) => one.userId === user);
    if (member && lastReadMessageId > (member.lastReadMessageId ?? "")) member.lastReadMessageId = lastReadMessageId;
    if (user === this.me?.id && lastReadMessageId >= (room.lastMessageId ?? "") && room.unread) {
      room.unread = 0;
      this.tell("rooms");
    }
    this.tell(`room ${roomId}`);
  }
}
