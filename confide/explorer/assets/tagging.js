// Tags of the open sample: the buttons, the note, the new label. What is shown as saved is on disk.
import { $, el } from "./dom.js";
import { get, isLost } from "./net.js";
import * as outbox from "./outbox.js";

const LONGEST = 10000;
let unsent = null; // a note still being typed

export function act(held, word) {
  outbox.push(held, (sample) => {
    if (sample.tag === word) return { action: null };
    if (word !== "relabel") return { action: word };
    const said = sample.top.classes ? sample.top.classes[0] : null;
    const guess = sample.suggested && sample.suggested.name !== sample.label ? sample.suggested.label : said && !said.own ? said.label : null;
    return { action: word, new_label: guess };
  }, [word]);
}

export function accept(held) {
  // The class that the scores suggest, in one key.
  if (held.sample && !suggestion(held.sample)) return false;
  outbox.push(held, (sample) => { const class_ = suggestion(sample); return class_ ? { action: "relabel", new_label: class_.label } : { note: sample.note }; }, ["suggestion"]);
  return true;
}

const suggestion = (sample) => (sample.suggested && sample.suggested.name !== sample.label ? sample.suggested : null);

export function sendNote() {
  if (!unsent) return;
  const { held, text, wait } = unsent;
  clearTimeout(wait);
  unsent = null;
  outbox.push(held, () => ({ note: text }), ["note"]);
}

export function panel(held) {
  const { sample } = held, kept = outbox.refusal(held.row);
  const button = (word, key) => el("button", { type: "button", "aria-pressed": String(sample.tag === word), "data-tag": word, "data-hold": word, onclick: (e) => { if (e.detail < 2) act(held, word); } }, word[0].toUpperCase() + word.slice(1), " ", el("kbd", {}, key));
  const text = kept?.body.note ?? sample.note;
  const note = el("textarea", { id: "note", rows: 2, value: text, dir: "auto", "aria-label": "Note", "data-hold": "note", placeholder: "A note", hidden: !text });
  note.addEventListener("input", () => {
    clearTimeout(unsent?.wait);
    const much = [...note.value].length;
    unsent = { held, text: note.value, wait: setTimeout(sendNote, 350) };
    if (much > LONGEST) say(held, `Notes have at most ${LONGEST.toLocaleString("en-US")} letters; this one has ${much.toLocaleString("en-US")}.`);
  });
  note.addEventListener("change", sendNote);
  const notes = el("button", { type: "button", "aria-pressed": String(Boolean(sample.note)), "data-hold": "notes", onclick: writeNote }, "Note ", el("kbd", {}, "N"));
  const line = el("p", { class: "saved", role: "status" }, el("span", { class: "to" }), el("span", { class: "state" }));
  const box = el("section", {}, el("h3", {}, "Tag"), el("div", { class: "tags" }, button("relabel", "R"), button("drop", "D"), button("keep", "K"), notes), suggestion(sample) ? el("button", { type: "button", class: "lnk accept", "data-hold": "accept", onclick: () => accept(held) }, `Relabel to the suggested ${suggestion(sample).name} `, el("kbd", {}, "A")) : null, note, line);
  update(held, box);
  return box;
}

export function writeNote(typed = "") {
  const note = $("note");
  note.hidden = false;
  note.focus();
  note.setSelectionRange(note.value.length, note.value.length);
  if (typeof typed !== "string" || !typed) return;
  note.setRangeText(typed, note.value.length, note.value.length, "end");
  note.dispatchEvent(new Event("input"));
}

export function keepTyping(old, held) {
  // The same sample was drawn anew while its note was written: go on where it was.
  const note = $("note");
  note.hidden = old.hidden;
  note.value = old.value;
  if (unsent) unsent.held = held;
  note.focus({ preventScroll: true });
  note.setSelectionRange(old.selectionStart, old.selectionEnd);
}

export function update(held, box = $("drawer")) {
  // In place: a control that is being used must not be taken from under the hands.
  const { sample } = held, used = document.activeElement, waits = outbox.pending(held.row), to = box.querySelector(".to"), note = box.querySelector("#note");
  box.querySelectorAll("[data-tag]").forEach((b) => { b.setAttribute("aria-pressed", String(b.dataset.tag === sample.tag)); b.classList.toggle("waits", waits.split(", ").includes(b.dataset.tag)); });
  box.querySelector("[data-hold=notes]").setAttribute("aria-pressed", String(Boolean(sample.note)));
  const mine = !outbox.isBusy(held.row) && !outbox.refusal(held.row) && !unsent;
  if (mine && note !== used && note.value.trim() !== sample.note) { note.value = sample.note; note.hidden = !sample.note; } // another tab's
  if (sample.tag !== "relabel") to.replaceChildren();
  else if (!to.firstChild) to.append(...newLabel(held));
  else if (!to.contains(used) && !outbox.isBusy(held.row)) to.querySelector("select, input").value = shownLabel(held); // not back to the old one while the new one is saved
  box.querySelector(".state").replaceChildren(...state(held));
}

function say(held, words) {
  const line = document.querySelector("#drawer .state");
  if (line) line.replaceChildren(el("span", { class: "pr" }, words));
}

function state(held) {
  const { sample } = held, kept = outbox.refusal(held.row);
  if (kept) return [el("span", { class: "pr" }, `Not saved. ${kept.error.message}`)];
  if (outbox.isBusy(held.row)) return [isLost() ? `Not saved yet: ${outbox.pending(held.row)}.` : `Saving ${outbox.pending(held.row)} …`];
  if (!sample.tag && !sample.note) return ["Not tagged."];
  const at = sample.changed ? new Date(sample.changed).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : "";
  return [sample.tag && sample.tag !== "relabel" ? `Tagged ${sample.tag}. ` : "", `Saved ${at}.`];
}

const shownLabel = ({ sample, classes }) => (classes.length ? String(sample.new_value ?? "") : sample.new_label ?? "");

function newLabel(held) {
  const { classes } = held;
  const save = (label) => outbox.push(held, () => ({ action: "relabel", new_label: label }), ["relabel"]);
  if (classes.length) {
    const pick = el("select", { "aria-label": "New label", "data-hold": "label", onchange: () => save(pick.value === "" ? null : +pick.value) }, el("option", { value: "" }, "choose a class"), classes.map((c) => el("option", { value: String(c.label) }, c.name)));
    pick.value = shownLabel(held);
    return [el("label", {}, "Relabel to ", pick), " "];
  }
  const options = el("datalist", { id: "new-labels" }), input = el("input", { type: "search", list: "new-labels", value: shownLabel(held), placeholder: "type a class", "aria-label": "New label", "data-hold": "label" });
  let known = new Map(), asked = 0, finding = Promise.resolve();
  const take = () => {
    const label = known.get(input.value);
    if (label !== undefined) save(label);
    return label !== undefined;
  };
  input.addEventListener("input", () => {
    const mine = ++asked;
    if (take()) return;
    finding = get("classes", new URLSearchParams({ text: input.value })).then((found) => {
      if (mine !== asked) return; // an answer to fewer letters, come late
      known = new Map(found.classes.map((c) => [c.name, c.label]));
      options.replaceChildren(...found.classes.map((c) => el("option", { value: c.name })));
      take();
    }).catch(() => {});
  });
  input.addEventListener("change", async () => {
    const text = input.value;
    await finding;
    if (text !== input.value || known.has(text) || text === shownLabel(held)) return;
    say(held, text ? `There is no class “${text}”.` : "A class must be typed.");
    input.value = shownLabel(held);
  });
  return [el("label", {}, "Relabel to ", input, options), " "];
}
