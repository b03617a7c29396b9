// Changes on their way to the file of tags: one after another, kept until they are there, sent again after a lost connection.
import { el, whole } from "./dom.js";
import * as net from "./net.js";

const FLUSHED = 10; // so many at once does a browser carry when the page is left
const waiting = []; // not yet on disk, oldest first; only the first is on its way
const refused = new Map(); // what the server would not take, by sample: nothing that was typed is thrown away
const written = new Map(); // what this page wrote last, by row
let working = false, pushed = 0, tell = () => {}, saved = () => {};

export const count = () => pushed;
const FIELDS = ["action", "new_label", "note"];
const known = (sample) => ({ action: sample.tag, new_label: sample.new_value, note: sample.note });
export const pending = (row) => waiting.filter((e) => e.held.row === row || e.held === row).flatMap((e) => e.words).join(", ");
export const isBusy = (row) => waiting.some((e) => e.held.row === row);
export const refusal = (row) => [...refused.values()].find((r) => r.held.row === row);
export const unsaved = () => waiting.length + refused.size;

export function prepare(onChange, onSaved) {
  tell = onChange; saved = onSaved;
  addEventListener("pagehide", flush);
  addEventListener("beforeunload", (e) => {
    flush(); // a page that is slow to leave may be ended before it is hidden; sent twice is as sent once
    const open = waiting.filter((w) => !w.sent);
    if (refused.size || open.length > FLUSHED || open.some((w) => !w.held.sample) || (waiting.length && net.isLost())) e.preventDefault();
  });
}

export function push(held, change, words = []) {
  // What is to change is decided from the sample as it is when all earlier changes are done.
  const last = waiting.at(-1);
  if (last && !last.sent && last.held === held && words[0] === "note" && last.words[0] === "note") {
    Object.assign(last, { change, body: null }); // written on before it left: one note, not many
    tell();
    return;
  }
  let finish;
  const done = new Promise((f) => { finish = f; });
  waiting.push({ held, change, words, done, finish, number: pushed++, body: null, sent: false });
  work();
  tell();
}

export function before(held) {
  // Until the changes that were made to this sample before it was asked for are answered.
  const last = waiting.filter((e) => e.held !== held && e.held.row === held.row && e.number < held.born).pop();
  return last ? last.done : null;
}

export async function all() {
  // Until nothing is on its way, or the connection is lost; how many changes are not saved then.
  while (waiting.length && !net.isLost()) await Promise.race([waiting.at(-1).done, new Promise((f) => setTimeout(f, 200))]);
  return unsaved();
}

async function work() {
  if (working) return;
  working = true;
  while (waiting.length) {
    const entry = waiting[0], { held } = entry;
    try {
      const sample = await held.ready();
      entry.body ??= { ...entry.change(sample), split: sample.split, id: sample.id, seen: seen(known(sample), written.get(held.row)) };
      entry.sent = true;
      const answer = await net.put("tag", entry.body, "", "PATCH");
      take(sample, answer);
      written.set(held.row, known(sample));
      accepted(entry);
      saved(held, answer);
    } catch (error) {
      entry.sent = false;
      if (net.isGone(error)) { tell(); await net.back(); continue; }
      if (error.state && held.sample) take(held.sample, error.state); // someone else was quicker: what it is now is shown
      refuse(entry, error);
    }
    waiting.shift();
    entry.finish();
    tell();
  }
  working = false;
}

// What was seen of a tag before it was changed: anything else there by now is someone else's, and is not overwritten.
// What this page wrote itself is as good as seen, also where a sample was read before that.
const seen = (...states) => Object.fromEntries(FIELDS.map((key) => [key, states.filter(Boolean).map((state) => state[key])]));
export const take = (sample, state) => Object.assign(sample, { tag: state.tag, new_label: state.new_label, new_value: state.new_value, note: state.note, changed: state.changed });

const name = (held) => (held.sample ? `${held.sample.split}/${held.sample.id}` : `row ${held.row}`);

function refuse(entry, error) {
  const old = refused.get(name(entry.held));
  refused.set(name(entry.held), { held: entry.held, change: entry.change, body: { ...(old ? old.body : {}), ...(entry.body || {}) }, error });
}

function accepted({ held, body }) {
  const old = refused.get(name(held));
  if (!old) return;
  for (const key of FIELDS) if (key in body) delete old.body[key];
  if (!FIELDS.some((key) => key in old.body)) refused.delete(name(held));
}

function sendAgain() {
  const list = [...refused.values()];
  refused.clear();
  for (const { held, change, body } of list) push(held, Object.keys(body).length ? () => body : change);
}

function flush() {
  // The page is being left: what waits behind another change goes now, together for each sample.
  const leaving = new Map();
  for (const entry of waiting) {
    const { held } = entry;
    if (!held.sample) continue;
    if (!leaving.has(held.row)) leaving.set(held.row, { sample: { ...held.sample }, body: null, seen: seen(known(held.sample), written.get(held.row)) });
    const last = leaving.get(held.row);
    entry.body ??= { ...entry.change(last.sample), split: last.sample.split, id: last.sample.id };
    if ("action" in entry.body) last.sample.tag = entry.body.action;
    if ("note" in entry.body) last.sample.note = entry.body.note;
    for (const key of FIELDS) if (key in entry.body) last.seen[key].push(entry.body[key]); // those before it may arrive first
    if (entry.sent) continue;
    // A new label goes with its own action only.
    last.body = { ...last.body, ...("action" in entry.body ? { new_label: undefined } : {}), ...entry.body };
  }
  for (const { body, seen: before } of leaving.values()) if (body) net.put("tag", { ...body, seen: before }, "", "PATCH").catch(() => {});
}

export function notice() {
  // One line for the top of the page, or nothing.
  const many = (n) => (n === 1 ? "1 change is" : `${whole(n)} changes are`), parts = [];
  if (waiting.length && net.isLost()) parts.push(el("b", {}, `${many(waiting.length)} not saved yet. `), "Kept in this page, and sent as soon as the connection is back. Do not close it.");
  if (refused.size) {
    const list = [...refused.values()], ids = list.slice(0, 5).map((r) => (r.held.sample ? r.held.sample.id : "a sample")).join(", ");
    parts.push(el("b", { class: "pr" }, `Not saved: ${ids}${list.length > 5 ? ` and ${whole(list.length - 5)} more` : ""}. `), list.at(-1).error.message, " ", el("button", { type: "button", class: "lnk", onclick: sendAgain }, "Send again"));
  }
  return parts.length ? el("p", {}, parts) : null;
}
