// The drawer: one sample, its tags first.
import { $, dataTable, el, missing, number, percent, shown, svg, when, whole } from "./dom.js";
import { get, put } from "./net.js";
import { looks } from "./rail.js";
import * as state from "./state.js";

const KEYS = { r: "relabel", d: "drop", k: "keep" };
const SHOWN = ["difficulty", "confidence", "trust", "loss"];
let about, grid, now = null, asked = 0, classes = null;
let moving = Promise.resolve(); // until the sample that was asked for last is shown
let sending = Promise.resolve(); // changes go one after another: each starts from what the one before left
let unsent = null; // a note still being typed

export function prepare(known, theGrid) {
  about = known; grid = theGrid;
  document.addEventListener("keydown", (e) => {
    if (!now || e.target.closest("input, select, textarea, dialog, [role=slider]") || e.ctrlKey || e.metaKey || e.altKey) return;
    const key = e.key.toLowerCase();
    if (KEYS[key]) { e.preventDefault(); moving.then(() => now && act(now, KEYS[key])); }
    else if (key === "n") { e.preventDefault(); const note = $("note"); note.hidden = false; note.focus(); }
    else if (e.key === "Escape") close();
    else if ((e.key === "ArrowLeft" || e.key === "ArrowRight") && !e.target.closest("#cells")) { e.preventDefault(); step(e.key === "ArrowLeft" ? -1 : 1); }
  });
  addEventListener("pagehide", sendNote);
}

export const isOpen = () => now !== null;

export function close() {
  const at = grid.current;
  now = null; asked++;
  $("drawer").hidden = true;
  document.querySelector(".mainv").classList.remove("open");
  grid.select(-1);
  state.set({ sample: null });
  const node = grid.cells.get(at);
  if (node) node.button.focus({ preventScroll: true });
}

export async function step(by) {
  const next = grid.current + by;
  if (grid.current < 0 || next < 0 || next >= grid.count) return;
  const cell = await grid.cellAt(next);
  if (cell) await show(cell.row, next);
}

export function show(row, position) {
  const shown = draw(row, position);
  moving = shown.catch(() => {});
  return shown;
}

async function draw(row, position) {
  const mine = ++asked, drawer = $("drawer");
  const query = state.query(["view", "sample", "sort"], [["row", row]]);
  sendNote();
  await sending; // a sample come back to shows what was just said of it
  const [sample, list] = await Promise.all([get("sample", query), classList()]);
  if (mine !== asked) return;
  now = { row, sample };
  drawer.hidden = false;
  document.querySelector(".mainv").classList.add("open");
  grid.resize();
  grid.select(position ?? -1);
  state.set({ sample: `${sample.split}/${sample.id}` });
  drawer.setAttribute("aria-label", `Sample ${sample.id}`);
  const hold = drawer.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  const near = section("Nearest in feature space"), parts = section("Score parts"), past = section("Over training");
  drawer.replaceChildren(header(sample, position), hero(sample), tagging(now, list), top(sample), near, parts, past);
  drawer.scrollTop = 0;
  if (hold) { const again = [...drawer.querySelectorAll("button")].find((b) => b.getAttribute("aria-label") === hold); if (again) again.focus(); }
  fillLater(mine, "neighbours", query, near, (found) => neighbours(found, sample));
  fillLater(mine, "parts", query, parts, (found) => scoreParts(found, sample));
  fillLater(mine, "history", query, past, (found) => overTime(found, sample));
}

async function fillLater(mine, path, query, node, draw) {
  const wait = el("div", { class: "wait" });
  node.append(wait);
  try {
    const found = await get(path, query);
    if (mine === asked) wait.replaceWith(...[draw(found)].flat());
  } catch (error) { if (mine === asked) wait.replaceWith(el("p", { class: "sub" }, error.message)); }
}

const section = (title) => el("section", {}, el("h3", {}, title));

async function classList() {
  if (classes === null) classes = about.num_classes <= 60 ? (await get("classes", "text=")).classes.sort((a, b) => a.label - b.label) : [];
  return classes;
}

function header(sample, position) {
  const button = (label, text, f, off) => el("button", { type: "button", "aria-label": label, disabled: off, onclick: f }, text);
  const where = position === null || position === undefined ? "outside the filters" : `${whole(position + 1)} of ${whole(grid.count)}`;
  return el("header", {}, el("h2", {}, el("span", { class: "mono" }, sample.id)), el("span", { class: "pos" }, where),
    el("span", { class: "nav" }, button("Previous sample", "←", () => step(-1), !(position > 0)), button("Next sample", "→", () => step(1), !(position >= 0 && position < grid.count - 1)), button("Close", "×", close)));
}

function hero(sample) {
  const fact = (name, value, wrong) => el("div", {}, el("dt", {}, name), el("dd", { class: wrong ? "pr" : null }, value));
  const verdict = sample.values.find((v) => v.key === "verdict");
  const facts = el("dl", {}, fact("Label", sample.label ?? "none"));
  if (sample.prediction !== null) facts.append(fact("Predicted", `${sample.prediction}, ${percent(sample.confidence)}`, sample.right === false));
  if (verdict && verdict.word) facts.append(fact("Looks", looks(verdict.word)));
  else facts.append(fact("Split", sample.split));
  if (sample.text !== null) return el("div", { class: "hero words-hero" }, el("blockquote", {}, sample.text), facts);
  if (!["image", "loading"].includes(about.kind)) return el("div", { class: "hero" }, facts);
  const image = el("img", { src: `/api/picture?row=${sample.row}`, alt: `Sample labelled ${sample.label ?? "nothing"}${sample.prediction === null ? "" : ", predicted " + sample.prediction}` });
  image.addEventListener("error", () => image.replaceWith(el("div", { class: "empty" }, el("h3", {}, "Picture not found"), el("p", {}, el("span", { class: "mono" }, sample.id), " is here, but its picture is gone. Everything else about it is shown."))));
  return el("div", { class: "hero" }, image, facts);
}

function tagging(held, list) {
  const { sample } = held;
  const button = (word, key) => el("button", { type: "button", "aria-pressed": String(sample.tag === word), "data-tag": word, onclick: () => act(held, word) }, word[0].toUpperCase() + word.slice(1), " ", el("kbd", {}, key));
  const note = el("textarea", { id: "note", rows: 2, value: sample.note, "aria-label": "Note", placeholder: "A note", hidden: !sample.note });
  note.addEventListener("input", () => { clearTimeout(unsent?.wait); unsent = { held, text: note.value, wait: setTimeout(sendNote, 350) }; });
  note.addEventListener("change", sendNote);
  const notes = el("button", { type: "button", "aria-pressed": String(Boolean(sample.note)), onclick: () => { note.hidden = false; note.focus(); } }, "Note ", el("kbd", {}, "N"));
  return el("section", {}, el("h3", {}, "Tag"), el("div", { class: "tags" }, button("relabel", "R"), button("drop", "D"), button("keep", "K"), notes), note, el("p", { class: "saved", role: "status" }, savedLine(held, list)));
}

function sendNote() {
  if (!unsent) return;
  const { held, text, wait } = unsent;
  clearTimeout(wait);
  unsent = null;
  save(held, () => ({ note: text }));
}

function savedLine(held, list) {
  const { sample } = held;
  const at = sample.changed ? new Date(sample.changed).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : "";
  if (!sample.tag && !sample.note) return ["Not tagged."];
  const saved = `Saved ${at}.`;
  if (sample.tag !== "relabel") return [sample.tag ? `Tagged ${sample.tag}. ` : "", saved];
  const label = (name) => (list || []).find((c) => c.name === name);
  if (list && list.length) {
    const pick = el("select", { "aria-label": "New label", onchange: () => save(held, () => ({ new_label: pick.value === "" ? null : +pick.value })) }, el("option", { value: "" }, "choose a class"), list.map((c) => el("option", { value: String(c.label) }, c.name)));
    pick.value = sample.new_label === null ? "" : String(label(sample.new_label)?.label ?? "");
    return [el("label", {}, "Relabel to ", pick), " ", saved];
  }
  const options = el("datalist", { id: "new-labels" }), input = el("input", { type: "search", list: "new-labels", value: sample.new_label ?? "", placeholder: "type a class", "aria-label": "New label" });
  let known = new Map();
  input.addEventListener("input", async () => {
    if (!known.has(input.value)) {
      const found = await get("classes", new URLSearchParams({ text: input.value }));
      known = new Map(found.classes.map((c) => [c.name, c.label]));
      options.replaceChildren(...found.classes.map((c) => el("option", { value: c.name })));
    }
    const label = known.get(input.value);
    if (label !== undefined) save(held, () => ({ new_label: label }));
  });
  return [el("label", {}, "Relabel to ", input, options), " ", saved];
}

function act(held, word) {
  return save(held, (sample) => {
    if (sample.tag === word) return { action: null };
    if (word !== "relabel") return { action: word };
    const said = sample.top.classes ? sample.top.classes[0] : null;
    const guess = sample.suggested && sample.suggested.name !== sample.label ? sample.suggested.label : said && !said.own ? said.label : null;
    return { action: word, new_label: guess };
  });
}

function save(held, change) {
  return (sending = sending.then(() => send(held, change)));
}

async function send(held, change) {
  const { sample, row } = held;
  const known = (classes || []).find((c) => c.name === sample.new_label);
  const body = { action: sample.tag, new_label: sample.new_value ?? known?.label ?? null, note: sample.note, ...change(sample) };
  if (body.action !== "relabel") body.new_label = null;
  try {
    const saved = await put("tag", body, `row=${row}`);
    Object.assign(sample, { tag: saved.tag, new_label: saved.new_label, note: saved.note, changed: saved.changed, new_value: body.new_label });
    grid.retag(row, saved.kind);
    document.dispatchEvent(new CustomEvent("tagged"));
    if (now !== held) return;
    document.querySelectorAll("#drawer [data-tag]").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.tag === sample.tag)));
    document.querySelector("#drawer .saved").replaceChildren(...savedLine(held, classes));
  } catch (error) {
    const what = now === held ? "Not saved." : `${sample.id} was not saved.`;
    document.querySelector("#drawer .saved").replaceChildren(el("span", { class: "pr" }, `${what} ${error.message}`));
  }
}

function top(sample) {
  const found = sample.top;
  if (found.missing) return el("section", {}, el("h3", {}, "Top classes"), missing(found.missing));
  const both = found.stage !== null, height = 34, left = 112, wide = 176;
  const chart = svg("svg", { viewBox: `0 0 344 ${found.classes.length * height + 4}`, role: "img", "aria-label": `The most probable classes: ${found.classes.map((c) => `${c.name} ${percent(c.after ?? c.before, 1)}`).join(", ")}` });
  found.classes.forEach((c, k) => {
    const y = k * height + 6, name = c.name.length > 17 ? c.name.slice(0, 16) + "…" : c.name;
    const text = svg("text", { x: 0, y: y + (both ? 15 : 12), class: c.own ? "b" : "l" }, name);
    text.append(svg("title", {}, c.name));
    chart.append(text, svg("path", { class: both ? "fg" : "f1", d: `M${left} ${y + 1}h${(wide * c.before).toFixed(1)}v8h-${(wide * c.before).toFixed(1)}z` }), svg("text", { x: 344, y: y + 9, class: both ? "e" : "e f1" }, percent(c.before, 1)));
    if (both) chart.append(svg("path", { class: "f1", d: `M${left} ${y + 11}h${(wide * c.after).toFixed(1)}v8h-${(wide * c.after).toFixed(1)}z` }), svg("text", { x: 344, y: y + 22, class: "f1 e" }, percent(c.after, 1)));
  });
  chart.append(svg("path", { class: "ax", d: `M${left} 2V${found.classes.length * height}` }));
  const words = ["One", "Two", "Three", "Four", "Five"];
  const key = both ? el("p", { class: "sub" }, el("i", { class: "sw sg" }), "as trained ", el("i", { class: "sw" }), when(found.stage)) : el("p", { class: "sub" }, "as trained; no calibrator was fitted");
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
  if (by.difficulty && by.difficulty.value !== null) rows.push(line(`Difficulty${about.method ? ` (${about.method.toUpperCase()})` : ""}`, by.difficulty.rank !== undefined ? `hardest ${percent(by.difficulty.rank, by.difficulty.rank < 0.095 ? 1 : 0)}` : "", shown("difficulty", by.difficulty.value)));
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
  return [el("p", { class: "sub" }, `Right in ${times} of ${n} epochs; the strip is red where it was wrong.`), chart,
    dataTable("Over training", ["Epoch", "p(label)", "Predicted"], () => found.epoch.map((e, k) => [e + 1, percent(found.probability[k], 1), found.names[k]]))];
}
