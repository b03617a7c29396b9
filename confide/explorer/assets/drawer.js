// The drawer: one sample, its tags first.
import { $, dataTable, el, missing, number, percent, shorten, shown, svg, tell, when, whole } from "./dom.js";
import * as net from "./net.js";
import { get } from "./net.js";
import * as outbox from "./outbox.js";
import { looks } from "./rail.js";
import * as state from "./state.js";
import * as tagging from "./tagging.js";
import * as toast from "./toast.js";
import * as zoom from "./zoom.js";

const KEYS = { r: "relabel", d: "drop", k: "keep" };
const SHOWN = ["difficulty", "confidence", "trust", "loss"];
let about, grid, complain, classes = null;
let now = null; // the sample that is shown
let target = null; // the sample that was asked for last: keys mean it, also while its answer is on the way
let letters = null; // typed for the note of a sample that is not shown yet
let failed = null; // the sample that was asked for and cannot be loaded
const ahead = new Map(); // answers about samples beside the one shown, by question

export function prepare(known, theGrid, complains) {
  about = known; grid = theGrid; complain = complains;
  for (const leaving of ["beforeunload", "pagehide"]) addEventListener(leaving, () => { endNote(); tagging.sendNote(); });
  outbox.prepare(() => { document.dispatchEvent(new CustomEvent("unsaved")); if (now) tagging.update(now); waiting(); }, tagged);
  net.on("lost", waiting);
  net.on("found", () => { if (failed) again(); });
  document.addEventListener("keydown", (e) => {
    if (!target || $("mainv").hidden || $("dialog").open) return; // no sample is in sight
    if (e.target.closest("input, select, textarea, dialog, [role=slider]") || e.ctrlKey || e.metaKey || e.altKey) return;
    if (letters !== null) { hear(e); return; }
    const key = e.key.toLowerCase();
    if ((KEYS[key] || key === "n" || key === "a" || e.key.startsWith("Arrow")) && isBlocked()) { e.preventDefault(); e.stopPropagation(); waiting(); return; }
    if (key === "a" && !e.repeat) { e.preventDefault(); if (!tagging.accept(target)) toast.say("No other class is suggested for this sample."); }
    else if (KEYS[key]) { e.preventDefault(); if (!e.repeat) tagging.act(target, KEYS[key]); } // held down is pressed once
    else if (key === "n") { e.preventDefault(); if (target === now) tagging.writeNote(); else letters = ""; }
    else if (e.key === "Escape") close();
    else if ((e.key === "ArrowLeft" || e.key === "ArrowRight") && !e.target.closest("#grid")) { e.preventDefault(); step(e.key === "ArrowLeft" ? -1 : 1); }
  });
  $("drawer").addEventListener("focusin", (e) => { if (e.target.id === "note" && now) { endNote(); target = now; } }); // who writes stays here
}

function hear(event) {
  // The letters of a note are no tags, also before there is a place to write them.
  const { key } = event;
  if (key === "Escape" || key === "Tab") endNote();
  else if (key === "Backspace") letters = letters.slice(0, -1);
  else if (key === "Enter") letters += "\n";
  else if (key.length === 1) letters += key;
  else return;
  event.preventDefault();
}

function endNote() {
  // What was typed for a sample that is not shown yet still becomes its note.
  const typed = letters;
  letters = null;
  if (typed && target) outbox.push(target, (sample) => ({ note: sample.note + typed }));
}

function tagged(held, answer) {
  forget(held.row);
  grid.retag(held.row, answer.kind);
  toast.changed(`${held.sample.id}: ${answer.tag ? answer.tag + (answer.new_label ? ` to ${answer.new_label}` : "") : answer.note ? "a note" : "no tag"}.`, answer.undo);
  document.dispatchEvent(new CustomEvent("tagged", { detail: answer.version }));
}

// A sample that was asked for and is not here: its keys wait for it while it comes, and are refused when it cannot.
const isBlocked = () => target !== now && (failed === target || net.isLost());

function waiting() {
  const drawer = $("drawer"), line = drawer.querySelector(".coming");
  if (!line || !now) return;
  const away = target !== null && target !== now;
  drawer.classList.toggle("away", away);
  line.hidden = !away;
  if (!away) return;
  const stay = el("button", { type: "button", class: "lnk", onclick: () => { failed = null; endNote(); target = now; waiting(); } }, `Stay with ${now.sample.id}`);
  if (isBlocked()) line.replaceChildren(el("b", {}, "The sample you stepped to cannot be loaded. "), `Keys do nothing until it is here; what you see is still ${now.sample.id}. `, stay);
  else { const words = outbox.pending(target); line.replaceChildren(words ? `The next sample is loading; for it: ${words}.` : "The next sample is loading."); }
}

function again() {
  // The connection is back: what was asked for is asked for again.
  const held = failed;
  failed = null;
  if (target !== held) return;
  draw(held).catch((error) => fail(held, error));
}

function fail(held, error) {
  if (target !== held) return;
  if (now) failed = held; else { endNote(); target = null; }
  waiting();
  complain(error);
}

function fetchSample(query, row) {
  if (!ahead.has(query)) {
    const answer = get("sample", query);
    ahead.set(query, { row, answer });
    answer.catch(() => ahead.delete(query));
    while (ahead.size > 8) ahead.delete(ahead.keys().next().value);
  }
  return ahead.get(query).answer;
}

export function forget(row) {
  for (const [query, entry] of ahead) if (row === undefined || entry.row === row) ahead.delete(query);
}

const question = (row) => state.query([...state.ASIDE, "sort"], [["row", row]]);

function lookAhead(held) {
  // The samples beside it, so that a step shows them at once, also when the server is gone.
  for (const by of [1, -1]) {
    const at = held.before === null ? null : beside(held, by), cell = at === null ? null : grid.known(at);
    if (!cell) continue;
    fetchSample(question(cell.row), cell.row).catch(() => {});
    if (about.kind === "image") new Image().src = `/api/picture?row=${cell.row}`;
  }
}

export async function changedElsewhere(rows) {
  // Someone else tagged the open sample, or one beside it.
  if (rows) rows.forEach((row) => forget(row)); else forget();
  const held = now;
  if (!held || (rows && !rows.includes(held.row)) || outbox.isBusy(held.row)) return;
  const fresh = await get("sample", held.query);
  if (now !== held || outbox.isBusy(held.row)) return;
  outbox.take(held.sample, fresh);
  tagging.update(held);
}

export const isOpen = () => target !== null;
export const forgetNames = () => { classes = null; };

export function close() {
  endNote(); tagging.sendNote();
  now = target = failed = null;
  $("drawer").hidden = true;
  document.querySelector(".mainv").classList.remove("open");
  grid.select(-1);
  state.set({ sample: null });
  grid.focusHere();
}

const once = (f) => { let kept = null; return () => (kept ??= f().catch((error) => { kept = null; throw error; })); };

function move(find) {
  // Keys that follow are for this sample at once, wherever its answer is.
  endNote(); tagging.sendNote();
  const held = { born: outbox.count(), row: null, sample: null };
  held.place = once(async () => {
    Object.assign(held, await find());
    if (target === held && held.inside) grid.follow(held.before);
    return held;
  });
  held.ready = once(async () => {
    await held.place();
    await outbox.before(held); // a sample come back to shows what was just said of it
    held.query = question(held.row);
    held.sample = { ...(await fetchSample(held.query, held.row)) };
    return held.sample;
  });
  target = held;
  failed = null;
  setTimeout(waiting, 250); // not for what comes at once
  return draw(held).catch((error) => fail(held, error));
}

export function show(row, position) {
  const inside = position !== null && position !== undefined;
  return move(async () => ({ row, before: inside ? position : null, inside, generation: grid.generation }));
}

export function open(position) {
  // A place of the grid whose row may not be known yet.
  return move(() => find(() => position));
}

export function step(by) {
  const from = target;
  if (isBlocked()) { waiting(); return; }
  if (!from || from.before === null || (from === now && from.generation === grid.generation && beside(from, by) === null)) return;
  move(async () => {
    await from.place();
    const stays = { row: from.row, before: from.before, inside: from.inside, generation: from.generation };
    return (await find(() => next(from, by), from)) || stays;
  });
}

async function next(from, by) {
  // The grid's own cells say where a sample stands in it; the server may know more tags by now.
  const at = grid.indexOf(from.row);
  if (at >= 0) Object.assign(from, { before: at, inside: true, generation: grid.generation });
  else if (from.generation !== grid.generation) await locate(from);
  return beside(from, by);
}

function beside(from, by) {
  // One that fits the filters no more has left a gap: the next one stands in its place.
  const base = by > 0 && !from.inside ? from.before - 1 : from.before, next = Math.max(0, Math.min(grid.count - 1, base + by));
  return (by > 0 ? next > base : next < base) ? next : null;
}

async function find(position, from = { row: -1 }) {
  // The row at a place; where the grid is drawn anew meanwhile, the place in the new one.
  for (let k = 0; k < 200; k++) {
    const known = grid.indexOf(from.row), at = await position(), { generation } = grid;
    if (at === null) return null;
    const cell = await grid.cellAt(at);
    if (cell && generation === grid.generation && (known >= 0 || grid.indexOf(from.row) < 0)) return { row: cell.row, before: at, inside: true, generation };
    if (!cell) await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error("The grid did not come; try again.");
}

async function locate(held) {
  const { generation } = grid, { split, id } = await held.ready();
  const more = [["split", split], ["id", id], ...state.values("split").map((s) => ["in", s])];
  const found = await get("locate", state.query([...state.ASIDE, "split"], more));
  Object.assign(held, { before: found.before, inside: found.position !== null, generation });
}

export async function relocate(reveal) {
  // The grid was drawn anew: where does the open sample stand now?
  const held = now;
  if (!held || held.generation === grid.generation || held.before === null) return;
  await locate(held);
  if (now !== held) return;
  const old = $("drawer").querySelector("header"), fresh = header(held);
  old.querySelector(".pos").replaceWith(fresh.querySelector(".pos"));
  old.querySelectorAll("button").forEach((b, k) => { b.disabled = fresh.querySelectorAll("button")[k].disabled; });
  if (target === held) grid.select(held.inside ? held.before : -1, reveal);
  state.set({ sample: `${held.sample.split}/${held.sample.id}` });
}

export function reload() {
  // Another model or stage speaks: the same sample again, unless another was asked for meanwhile.
  const from = target;
  if (from && from === now) move(async () => ({ row: from.row, before: from.before, inside: from.inside, generation: from.generation })).then(() => relocate(true)).catch(complain);
}

async function draw(held) {
  const drawer = $("drawer"), [sample] = await Promise.all([held.ready(), classList()]);
  if (target !== held) return;
  held.classes = classes;
  const same = now && now.row === held.row, used = drawer.contains(document.activeElement) ? document.activeElement : null, old = $("note");
  now = held;
  drawer.hidden = false;
  document.querySelector(".mainv").classList.add("open");
  grid.resize();
  grid.select(held.inside ? held.before : -1);
  state.set({ sample: `${sample.split}/${sample.id}` });
  drawer.setAttribute("aria-label", `Sample ${sample.id}`);
  const near = section("Nearest in feature space"), parts = section("Score parts"), past = section("Over training");
  drawer.classList.remove("away");
  drawer.replaceChildren(header(held), el("p", { class: "coming", role: "status", hidden: true }), hero(sample), tagging.panel(held), top(sample), near, parts, past);
  drawer.scrollTop = 0;
  if (letters !== null) { const typed = letters; letters = null; tagging.writeNote(typed); }
  else if (used && used === old && same) tagging.keepTyping(old, held);
  else if (used) (drawer.querySelector(`[data-hold="${used.dataset.hold}"]:not(:disabled)`) || drawer.querySelector("h2")).focus({ preventScroll: true });
  lookAhead(held);
  fillLater(held, "neighbours", near, (found) => neighbours(found, sample));
  fillLater(held, "parts", parts, (found) => scoreParts(found, sample));
  fillLater(held, "history", past, (found) => overTime(found, sample));
}

async function fillLater(held, path, node, draw) {
  const wait = el("div", { class: "wait" });
  node.append(wait);
  try {
    const found = await get(path, held.query);
    if (now === held) wait.replaceWith(...[draw(found)].flat());
  } catch (error) { if (now === held) wait.replaceWith(el("p", { class: "sub" }, net.isGone(error) ? "Not loaded: the connection was lost." : error.message)); }
}

const section = (title) => el("section", {}, el("h3", {}, title));

async function classList() {
  if (classes === null) classes = about.num_classes <= 60 ? (await get("classes", "text=")).classes.sort((a, b) => a.label - b.label) : [];
  return classes;
}

function header({ sample, before, inside }) {
  const button = (label, text, f, off) => el("button", { type: "button", "aria-label": label, "data-hold": label, disabled: off, onclick: f }, text);
  const where = inside ? `${whole(before + 1)} of ${whole(grid.count)}` : "outside the filters";
  const first = before === null || before <= 0, last = before === null || before >= grid.count - (inside ? 1 : 0);
  return el("header", {}, el("h2", { tabindex: "-1" }, el("span", { class: "mono" }, sample.id)), el("span", { class: "pos" }, where),
    el("span", { class: "nav" }, button("Previous sample", "←", () => step(-1), first), button("Next sample", "→", () => step(1), last), button("Close", "×", close)));
}

function hero(sample) {
  const fact = (name, value, wrong) => el("div", {}, el("dt", {}, name), el("dd", { class: wrong ? "pr" : null }, value));
  const verdict = sample.values.find((v) => v.key === "verdict");
  const pair = !about.num_classes && sample.confidence !== null; // confidence and correctness alone: there is no label to show
  const facts = el("dl", {}, pair ? fact("Answer", `${sample.right === null ? "not judged" : sample.right ? "right" : "wrong"}, ${percent(sample.confidence)}`, sample.right === false) : fact("Label", sample.label ?? "none"));
  if (sample.prediction !== null) facts.append(fact("Predicted", `${sample.prediction}, ${percent(sample.confidence)}`, sample.right === false));
  if (verdict && verdict.word) facts.append(fact("Looks", looks(verdict.word)));
  else facts.append(fact("Split", sample.split));
  if (sample.text !== null) return el("div", { class: "hero words-hero" }, el("blockquote", {}, sample.text), facts);
  if (!["image", "loading"].includes(about.kind)) return el("div", { class: "hero" }, facts);
  const image = el("img", { src: `/api/picture?row=${sample.row}`, alt: `Sample labelled ${sample.label ?? "nothing"}${sample.prediction === null ? "" : ", predicted " + sample.prediction}` });
  image.addEventListener("error", () => (image.closest("button") || image).replaceWith(el("div", { class: "empty" }, el("h3", {}, "Picture not found"), el("p", {}, el("span", { class: "mono" }, sample.id), " is here, but its picture is gone. Everything else about it is shown."))));
  const look = el("button", { type: "button", class: "look", "aria-label": "Look at the picture closely", onclick: () => zoom.show(sample, image.alt) }, image);
  return el("div", { class: "hero" }, look, facts);
}

function top(sample) {
  const found = sample.top;
  if (found.missing) return el("section", {}, el("h3", {}, "Top classes"), missing(found.missing));
  const both = found.stage !== null, height = 34, left = 112, wide = 176;
  const chart = svg("svg", { viewBox: `0 0 344 ${found.classes.length * height + 4}`, role: "img", "aria-label": `The most probable classes: ${found.classes.map((c) => `${c.name} ${percent(c.after ?? c.before, 1)}`).join(", ")}` });
  found.classes.forEach((c, k) => {
    const y = k * height + 6, name = shorten(c.name, left - 6, c.own ? 600 : 400);
    const text = svg("text", { x: 0, y: y + (both ? 15 : 12), class: c.own ? "b" : "l" }, name);
    text.append(svg("title", {}, c.name));
    chart.append(text, svg("path", { class: both ? "fg" : "f1", d: `M${left} ${y + 1}h${(wide * c.before).toFixed(1)}v8h-${(wide * c.before).toFixed(1)}z` }), svg("text", { x: 344, y: y + 9, class: both ? "e" : "e f1" }, percent(c.before, 1)));
    if (both) chart.append(svg("path", { class: "f1", d: `M${left} ${y + 11}h${(wide * c.after).toFixed(1)}v8h-${(wide * c.after).toFixed(1)}z` }), svg("text", { x: 344, y: y + 22, class: "f1 e" }, percent(c.after, 1)));
  });
  chart.append(svg("path", { class: "ax", d: `M${left} 2V${found.classes.length * height}` }));
  const words = ["One", "Two", "Three", "Four", "Five"];
  const key = both ? el("p", { class: "sub" }, el("i", { class: "sw sg" }), "as trained ", el("i", { class: "sw" }), when(found.stage_title)) : el("p", { class: "sub" }, "as trained; no calibrator was fitted");
  return el("section", {}, el("h3", {}, `Top ${(words[found.classes.length - 1] || "").toLowerCase()} classes`), key, chart);
}

function neighbours(found, sample) {
  if (found.missing) return missing(found.missing);
  const near = found.neighbours, counts = new Map();
  near.forEach((n) => counts.set(n.name, (counts.get(n.name) || 0) + 1));
  const [most, times] = [...counts].sort((a, b) => b[1] - a[1])[0] || ["", 0];
  const words = ["none", "One", "Two", "Three", "Four", "Five", "Six"];
  const sentence = times === near.length ? `All ${words[times].toLowerCase()} nearest training samples are labelled ${most}.` : `${words[times]} of ${words[near.length].toLowerCase()} nearest training samples are labelled ${most}.`;
  const item = (n) => el("li", {}, el("button", { type: "button", disabled: n.row === null, onclick: () => show(n.row, null) },
    about.kind === "image" && n.row !== null ? el("img", { src: `/api/picture?row=${n.row}&small=1`, alt: n.name ?? "" }) : el("span", { class: "mono" }, n.id),
    el("span", { class: n.name !== sample.label ? "pr" : null }, n.name ?? "none"), el("span", {}, n.distance < 100 ? n.distance.toFixed(2) : number(n.distance))));
  return [el("p", { class: "sub" }, sentence), el("ul", { class: "neigh" }, near.map(item))];
}

function scoreParts(found, sample) {
  const line = (name, note, value) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, note ?? ""), el("td", {}, value));
  const rows = [], by = Object.fromEntries(sample.values.map((v) => [v.key, v]));
  if (!found.missing) rows.push(line("Distance to its label", sample.label, number(found.own)), line("Distance to all samples", "background", number(found.all)));
  if (by.difficulty && by.difficulty.value !== null) rows.push(line(`Difficulty${about.method ? ` (${about.method.toUpperCase()})` : ""}`, by.difficulty.rank !== null ? `hardest ${percent(by.difficulty.rank, by.difficulty.rank < 0.095 ? 1 : 0)}` : "", shown("difficulty", by.difficulty.value)));
  if (!found.missing) rows.push(line("Closest class", found.closest_name, number(found.closest_distance)));
  if (by.trust && by.trust.value !== null) rows.push(line("Trust", about.trust, shown("trust", by.trust.value)));
  if (by.loss && by.loss.value !== null) rows.push(line("Loss", "nats", shown("loss", by.loss.value)));
  for (const v of sample.values) if (![...SHOWN, "verdict"].includes(v.key) && v.value !== null) rows.push(line(v.key.startsWith("c.") ? el("code", {}, v.title) : v.title, v.key === "suggested" || v.key === "runner_up" ? "of the class Gaussians" : "", v.word ?? (v.kind === "text" ? v.value : number(v.value))));
  const nodes = [el("table", {}, rows)];
  if (found.missing && found.missing.command) nodes.push(missing(found.missing));
  return nodes;
}

function overTime(found, sample) {
  if (found.missing) return missing(found.missing);
  const n = found.epoch.length;
  const ok = found.right, x = (k) => 30 + (n > 1 ? (k * 308) / (n - 1) : 154), y = (p) => 92 - 72 * p;
  const times = ok.filter(Boolean).length;
  const chart = svg("svg", { viewBox: "0 0 344 144", role: "img", "aria-label": `Probability of the label over ${n} epochs, from ${percent(found.probability[0])} to ${percent(found.probability[n - 1])}; right in ${times}` });
  for (const p of [0, 0.5, 1]) chart.append(svg("path", { class: "g", d: `M30 ${y(p)}H338` }), svg("text", { x: 24, y: y(p) + 4, class: "e" }, String(100 * p)));
  chart.append(svg("text", { x: 30, y: 9 }, "p(label), %"));
  if (n > 1) chart.append(svg("path", { class: "ln k1", d: found.probability.map((p, k) => `${k ? "L" : "M"}${x(k).toFixed(1)} ${y(p).toFixed(1)}`).join("") }));
  else chart.append(svg("circle", { class: "f1", cx: x(0), cy: y(found.probability[0]), r: 3.5 }));
  chart.append(svg("path", { class: "ax", d: "M30 92H338" }));
  const wide = 308 / n;
  const strip = (wanted) => ok.map((r, k) => (r === wanted ? `M${(30 + k * wide).toFixed(1)} 104h${Math.max(1, wide - 1).toFixed(1)}v9h-${Math.max(1, wide - 1).toFixed(1)}z` : "")).join("");
  chart.append(svg("path", { class: "fb", d: strip(true) }), svg("path", { class: "fw", d: strip(false) }));
  for (const k of new Set([0, Math.floor((n - 1) / 2), n - 1])) chart.append(svg("text", { x: 30 + (k + 0.5) * wide, y: 127, class: "m" }, String(found.epoch[k] + 1)));
  chart.append(svg("text", { x: 338, y: 142, class: "e" }, "Epoch"));
  tell(chart, found.probability.map((p, k) => [x(k), y(p), `Epoch ${found.epoch[k] + 1}: ${percent(p, 1)} for the label, predicted ${found.names[k]}`]));
  return [el("p", { class: "sub" }, `Right in ${times} of ${n} epochs; the strip is red where it was wrong.`), chart,
    dataTable("Over training", ["Epoch", "p(label)", "Predicted"], () => found.epoch.map((e, k) => [e + 1, percent(found.probability[k], 1), found.names[k]]))];
}
