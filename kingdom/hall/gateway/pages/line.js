/** The connection to the gateway: the stock Socket.IO client, and what the page asks of it. */

import { io } from "./vendor/socket.io.esm.min.js";

const ANSWER_MS = 15_000;
const HEARTBEAT_MS = 20_000;

export class Line {
  /** `hears` has a function for every event, and `up`, `down`, `ended`. */
  constructor(token, hears) {
    this.socket = io({
      auth: { token },
      transports: ["websocket", "polling"],
      tryAllTransports: true,
      reconnectionDelay: 400,
      reconnectionDelayMax: 4000,
    });
    this.socket.on("connect", hears.up);
    this.socket.on("disconnect", (reason) => (reason === "io server disconnect" ? hears.ended() : hears.down()));
    for (const event of ["newMessage", "presence", "typing", "read", "membership"]) this.socket.on(event, hears[event]);
    this.beat = setInterval(() => this.call("heartbeat").catch(() => {}), HEARTBEAT_MS);
    this.again = () => this.reconnect();
    window.addEventListener("online", this.again);
  }

  get isUp() {
    return this.socket.connected;
  }

  /** Return the answer to a call; throw when there is none. */
  async call(event, payload = {}) {
    if (!this.isUp) throw new Error("not connected");
    return this.socket.timeout(ANSWER_MS).emitWithAck(event, payload);
  }

  /** Try at once instead of when the pause is over. */
  reconnect() {
    if (!this.isUp) this.socket.disconnect().connect();
  }

  close() {
    clearInterval(this.beat);
    window.removeEventListener("online", this.again);
    this.socket.removeAllListeners();
    this.socket.disconnect();
  }
}
