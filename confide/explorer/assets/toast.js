// What was just done, said for a moment, with a way to take it back; Ctrl-Z takes back the last of it.
import { el, whole } from "./dom.js";
import * as net from "./net.js";
import * as outbox from "./outbox.js";

const SHOWN = 8000; // ms
const done = []; // what can be taken back, the last one last
let box = null, wait = 0, after = () => {}, turn = Promise.resolve();

export function prepare(undone) {
  after = undone;
  document.addEventListener("keydown", (e) => {
    if (e.key.toLowerCase() !== "z" || !(e.ctrlKey || e.metaKey) || e.shiftKey || e.altKey || e.target.closest("input:not([type=checkbox]), textarea, dialog")) return;
    e.preventDefault();
    undo();
  });
}

export function say(words, more = null) {
  if (!box) { box = el("div", { class: "toast", role: "status" }); document.querySelector(".app").append(box); }
  clearTimeout(wait);
  box.replaceChildren(el("span", {}, words), ...(more ? [more] : []));
  box.hidden = false;
  wait = setTimeout(hide, SHOWN);
}

function hide() {
  if (box.contains(document.activeElement)) { wait = setTimeout(hide, SHOWN); return; }
  box.hidden = true;
}

export function changed(words, name) {
  done.push({ words, name });
  say(words, el("button", { type: "button", class: "lnk", onclick: undo }, "Undo ", el("kbd", {}, "Ctrl Z")));
}

export function undo() {
  turn = turn.then(takeBack, takeBack); // one after another: the last word is about the last key
  return turn;
}

async function takeBack() {
  // After all that is on its way: what is taken back is on disk.
  if (await outbox.all()) { say("Not taken back: changes before it are not saved yet."); return; }
  const step = done.pop();
  if (!step) { say("There is nothing to take back."); return; }
  try {
    const answer = await net.put("undo", { undo: step.name }, "", "POST");
    const rest = answer.skipped ? ` ${whole(answer.skipped)} changed again since stay as they are.` : "";
    say(answer.changed ? `Taken back: ${step.words}${rest}` : `Not taken back: ${step.words} It was changed again since.`);
    after();
  } catch (error) {
    if (net.isGone(error)) done.push(step);
    say(`Not taken back. ${net.isGone(error) ? "The connection is lost." : error.message}`);
  }
}
