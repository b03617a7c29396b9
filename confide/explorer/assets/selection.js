// Several samples at once: chosen in the grid, or all that fit; tagged together, and taken back together.
import { $, el, whole } from "./dom.js";
import * as net from "./net.js";
import * as outbox from "./outbox.js";
import * as state from "./state.js";
import * as toast from "./toast.js";

const MOST = 20000; // what the server takes at once
let grid, after = () => {}, complain = () => {}, all = false;

export function prepare(theGrid, changed, complains) {
  grid = theGrid; after = changed; complain = complains;
  grid.onChosen = draw;
  $("select").addEventListener("click", () => { if ($("bulk").hidden) { all = false; $("bulk").hidden = false; draw(); } else close(); });
}

export function close() {
  all = false;
  $("bulk").hidden = true;
  grid.choose(null);
  draw();
}

const rows = () => [...grid.chosen.keys()];
const many = () => (all ? grid.count : grid.chosen.size);

export function draw() {
  const box = $("bulk");
  if (grid.chosen.size) box.hidden = false;
  $("select").setAttribute("aria-pressed", String(!box.hidden));
  if (box.hidden) { box.replaceChildren(); return; }
  const used = box.contains(document.activeElement) ? document.activeElement.textContent : null;
  const n = many(), none = !n || n > MOST;
  const button = (title, body, words) => el("button", { type: "button", class: "btn", disabled: none, onclick: () => tag(body, words) }, title);
  const everything = el("label", {}, el("input", { type: "checkbox", checked: all, onchange: (e) => { all = e.target.checked; draw(); } }), ` all ${whole(grid.count)} that fit`);
  const words = all ? `${whole(n)} samples, all that fit` : n ? `${whole(n)} chosen` : "Ctrl-click or Shift-click samples, or press X on one";
  box.replaceChildren(el("span", { class: "n", role: "status" }, n > MOST ? `${words}: at most ${whole(MOST)} at once` : words), everything, button("Drop", { action: "drop" }, "drop"), button("Keep", { action: "keep" }, "keep"), button("Take the suggested class", { new_label: "suggested" }, "relabel to the suggested class"), button("Remove tags", { action: null, note: "" }, "no tag"), el("button", { type: "button", class: "lnk", onclick: close }, "Close"));
  if (used) ([...box.querySelectorAll("button")].find((b) => b.textContent === used) || $("select")).focus();
}

async function tag(body, words) {
  await outbox.all();
  try {
    const answer = await net.put("tags", all ? { ...body, all: true } : { ...body, rows: rows() }, all ? state.query() : "", "POST");
    const rest = answer.skipped ? `; ${whole(answer.skipped)} have no other class suggested` : "";
    if (answer.changed) toast.changed(`${whole(answer.changed)} ${answer.changed === 1 ? "sample" : "samples"}: ${words}${rest}.`, answer.undo); else toast.say(`Nothing was changed${rest}.`);
    close();
    after();
  } catch (error) { if (net.isGone(error)) toast.say("Not tagged: the connection is lost."); else complain(error); }
}
