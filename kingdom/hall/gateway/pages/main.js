/** The page: who is not signed in sees the entrance, everybody else the hall. */

import { h } from "./dom.js";
import { Hall } from "./hall.js";
import { here, onMove } from "./router.js";
import { entrance } from "./views/entrance.js";
import { Frame } from "./views/frame.js";
import { language } from "./words.js";

const page = document.getElementById("page");
const hall = new Hall();
let frame = null;

/** Draw everything anew: at the start, and when somebody signs in or out or changes the language. */
function draw() {
  document.documentElement.lang = language();
  frame?.close();
  frame = null;
  const { name, ids } = here();
  if (hall.me) {
    frame = new Frame(hall, draw);
    page.replaceChildren(frame.element);
    frame.move();
  } else page.replaceChildren(entrance(hall, name === "join" ? ids[1] : null, draw));
}

page.replaceChildren(h("main", { class: "waits", "aria-busy": "true" }));
onMove(() => (frame ? frame.move() : draw()));
await hall.resume();
hall.on("me", draw);
draw();
