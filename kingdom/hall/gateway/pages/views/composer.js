/** The box to write into. Enter sends, unless it ends the composition of a syllable. */

import { fill, h, icon } from "../dom.js";
import { roomName, t } from "../words.js";

const LONGEST = 5000;
const TELL_MS = 3000;
const STILL_MS = 4000;

export class Composer {
  constructor(hall, room, sent) {
    this.hall = hall;
    this.room = room;
    this.sent = sent;
    this.toldAt = 0;
    this.box = h("textarea", {
      id: "write",
      rows: 1,
      placeholder: t("write"),
      "aria-label": t("writeIn", roomName(room)[0]),
      oninput: () => this.#changed(),
      onkeydown: (event) => this.#key(event),
    });
    this.box.value = hall.drafts.of(room.id);
    this.left = h("p", { class: "alert small", role: "alert" });
    this.button = h("button", { class: "send", "aria-label": t("send"), title: t("send") }, icon("send"));
    this.element = h(
      "form",
      { class: "composer", onsubmit: (event) => (event.preventDefault(), this.#send()) },
      this.left,
      h("div", { class: "box" }, this.box, this.button),
      h("p", { class: "hint dim small" }, t("keysHint")),
    );
    queueMicrotask(() => this.#changed(false));
  }

  focus() {
    this.box.focus();
  }

  close() {
    if (this.toldAt) this.hall.typing(this.room, false);
    clearTimeout(this.still);
  }

  #key(event) {
    // 229: the key belongs to an input method; Safari says so only here.
    const isComposing = event.isComposing || event.keyCode === 229;
    if (event.key === "Enter" && !event.shiftKey && !isComposing) {
      event.preventDefault();
      this.#send();
    }
  }

  #changed(tells = true) {
    const text = this.box.value;
    if (tells) this.hall.drafts.keep(this.room.id, text);
    // As high as what is written; the style sheet says how high at most.
    this.box.style.height = "auto";
    this.box.style.height = `${this.box.scrollHeight}px`;
    const over = text.length - LONGEST;
    fill(this.left, over > 0 ? t("tooLong", over) : "");
    this.button.disabled = !text.trim() || over > 0;
    if (tells) this.#tell(Boolean(text.trim()));
  }

  /** Tell that one types: now and then while it goes on, and when it ends. */
  #tell(on) {
    clearTimeout(this.still);
    if (on) this.still = setTimeout(() => this.#tell(false), STILL_MS);
    if (on ? Date.now() - this.toldAt < TELL_MS : !this.toldAt) return;
    this.toldAt = on ? Date.now() : 0;
    this.hall.typing(this.room, on);
  }

  #send() {
    const text = this.box.value.trim();
    if (!text || text.length > LONGEST) return;
    this.box.value = "";
    this.#changed();
    this.room.newFrom = null;
    this.hall.outbox.add(this.room.id, text);
    this.sent();
    this.focus();
  }
}
