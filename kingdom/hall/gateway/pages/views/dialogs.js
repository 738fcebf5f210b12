/** Dialogs: the browser's own, which keep the focus inside and close with Escape. */

import { h } from "../dom.js";
import { go } from "../router.js";
import { refusal, roomName, t } from "../words.js";

/** Show a dialog. `act` gets the value of its field, and an error keeps it open. */
function show(title, content, action, act, isGrave = false) {
  const why = h("p", { class: "alert", role: "alert" });
  const input = content.querySelector?.("input");
  const button = h("button", { class: isGrave ? "main grave" : "main" }, action);

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    try {
      await act(input?.value.trim());
      dialog.close();
    } catch (error) {
      why.textContent = refusal(error);
      button.disabled = false;
    }
  }

  const dialog = h(
    "dialog",
    { "aria-labelledby": "dialog-title" },
    h(
      "form",
      { onsubmit: submit },
      h("h2", { id: "dialog-title" }, title),
      content,
      why,
      h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => dialog.close() }, t("cancel")), button),
    ),
  );
  // The browser itself gives the focus back, before whatever the deed leads to takes it.
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

export function newRoom(hall) {
  const content = h("label", null, h("span", null, t("roomName")), h("input", { required: true, maxlength: 100, autocomplete: "off" }));
  show(t("newRoom"), content, t("create"), async (name) => go(`/room/${await hall.addRoom(name)}`));
}

export function removeMessage(hall, room, message) {
  const content = h("div", null, h("p", { class: "dim" }, t("removeText")), h("blockquote", null, message.content));
  show(t("removeTitle"), content, t("remove"), () => hall.remove(room, message), true);
}

/** Let an owner order something of the king, and wait for what comes of it. */
export function giveOrder(hall, action, target, what) {
  const content = h("div", null, h("p", { class: "dim" }, t(`orderText_${action}`)), h("blockquote", null, what));
  show(t(`orderTitle_${action}`), content, t(`order_${action}`), () => hall.order(action, target), true);
}

export function restartRole(hall, role) {
  const content = h("p", { class: "dim" }, t("restartText"));
  show(t("restartTitle", role), content, t("restart"), () => hall.restart(role), true);
}

export function leaveRoom(hall, room) {
  const content = h("p", { class: "dim" }, t("leaveText"));
  const act = async () => {
    await hall.leaveRoom(room.id);
    go("/");
  };
  show(t("leaveTitle", roomName(room)[0]), content, t("leave"), act, true);
}
