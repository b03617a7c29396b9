// The page: reads the view from the address, asks the server, hands answers to rail, grid, drawer and comparison.
import { $, el, empty, inside, shown, when, whole } from "./dom.js";
import * as compare from "./compare.js";
import * as dialogs from "./dialogs.js";
import * as drawer from "./drawer.js";
import { Grid } from "./grid.js";
import * as net from "./net.js";
import * as outbox from "./outbox.js";
import * as rail from "./rail.js";
import * as selection from "./selection.js";
import * as state from "./state.js";
import * as toast from "./toast.js";
import * as why from "./why.js";

let about, grid, columns = {}, found = null, asked = 0, abort = null;
const SORTS = [["-difficulty", "hardest first"], ["difficulty", "easiest first"], ["confidence", "least confident"], ["-confidence", "most confident"], ["trust", "least trusted"], ["-trust", "most trusted"], ["-loss", "largest loss"], ["loss", "smallest loss"], ["-changes", "changed most often"]];

async function start() {
  theme();
  about = await net.get("about");
  const splits = Object.keys(about.splits);
  state.load(splits.length > 1 && splits.includes("test") ? [["split", "test"]] : []);
  grid = new Grid(open);
  grid.onRows = footer;
  grid.onError = complain;
  grid.onStale = tagsChanged;
  grid.walk = (by) => drawer.isOpen() && (drawer.step(by), true);
  drawer.prepare(about, grid, complain);
  toast.prepare(() => follow());
  selection.prepare(grid, () => follow(), complain);
  why.prepare(about, complain, (row) => drawer.show(row, null));
  chrome();
  await tidy();
  state.watch(changed);
  document.addEventListener("columns", () => refresh(true));
  document.addEventListener("tagged", (e) => { if (e.detail === version + 1) version = e.detail; tagsChanged(); });
  version = about.tags_version;
  setInterval(() => { if (!document.hidden && !net.isLost()) follow(); }, FOLLOW);
  document.addEventListener("unsaved", unsaved);
  net.on("lost", () => { lost(); unsaved(); });
  net.on("found", () => { notice("lost", null); unsaved(); grid.again(); refresh(true); if (!drawer.isOpen()) openFromAddress(); });
  addEventListener("pageshow", (e) => { if (e.persisted) refresh(true); }); // come back to: others may have tagged
  settleKind().catch(complain);
  await refresh();
  await openFromAddress();
  view();
}

async function tidy() {
  // Of a link that says more than there is here, the rest is shown.
  if (!state.filters().length && !["model", "stage", "sort", "with"].some(state.one)) return;
  const { kept, dropped } = await net.get("check", state.query());
  if (!dropped.length) return;
  state.keep(kept);
  const close = el("button", { type: "button", class: "lnk", onclick: () => notice("dropped", null) }, "All right");
  notice("dropped", el("p", {}, el("b", {}, dropped.length === 1 ? "A part of the link was left out: " : "Parts of the link were left out: "), dropped.join("; "), ". ", close));
}

const FOLLOW = 3000; // ms between questions whether someone else has tagged
let version = 0, following = false;
async function follow() {
  if (following) return;
  following = true;
  try {
    const found = await net.get("changes", `since=${version}`);
    if (found.version === version) return;
    version = found.version;
    if (found.rows) found.rows.forEach(([row, kind]) => grid.retag(row, kind)); else grid.show(grid.count, true);
    drawer.changedElsewhere(found.rows && found.rows.map(([row]) => row)).catch(complain);
    tagsChanged();
  } catch (error) { complain(error); } finally { following = false; }
}

async function settleKind() {
  // Pictures are loaded in the background; until then places are shown.
  const named = about.named;
  grid.loading = about.kind === "loading";
  while (about.kind === "loading") {
    await new Promise((done) => setTimeout(done, 300));
    try { Object.assign(about, await net.get("about")); } catch (error) { if (!net.isGone(error)) throw error; } // asked again when it is back
  }
  grid.loading = false;
  grid.kind = about.kind === "image" || about.kind === "text" ? about.kind : "none";
  notices();
  if (grid.kind === "image") grid.render(); else grid.show(grid.count, true);
  if (about.named !== named) { drawer.forgetNames(); grid.query = null; await refresh(true); drawer.reload(); } // the dataset brought the names of the classes
}

function chrome() {
  document.title = `Explorer: ${about.title}`;
  $("title").textContent = about.title;
  const models = Object.keys(about.models);
  $("model-pick").hidden = !models.length;
  $("model").replaceChildren(...models.map((m) => el("option", { value: m }, m)));
  $("model").addEventListener("change", () => state.set({ model: $("model").value, stage: about.models[$("model").value].includes(state.one("stage")) ? state.one("stage") : null, with: null, cells: null, disagree: null }));
  $("stage").addEventListener("change", () => state.set({ stage: $("stage").value }));
  $("sort").addEventListener("change", () => state.set({ sort: $("sort").value }));
  $("report").hidden = !about.report;
  $("compare").hidden = models.length < 2;
  $("compare").addEventListener("click", () => state.set({ view: state.one("view") === "compare" ? null : "compare" }));
  $("save").addEventListener("click", dialogs.save);
  $("export").addEventListener("click", () => found && dialogs.exported(about, found.count, tagged));
  $("filters").addEventListener("click", () => { const on = $("rail").classList.toggle("shown"); $("filters").setAttribute("aria-expanded", String(on)); });
  picks();
}

function picks() {
  const models = Object.keys(about.models), model = state.one("model") || models[0];
  $("model").value = model;
  const stages = about.models[model] || [];
  $("stage-pick").hidden = stages.length < 2;
  $("stage").replaceChildren(...stages.map((s) => el("option", { value: s }, s === "raw" ? when(null) : s)));
  $("stage").value = state.one("stage") || about.opening_stages[model];
}

function sorts() {
  const numbers = Object.values(columns).filter((c) => c.kind === "number").map((c) => c.key);
  const list = SORTS.filter(([key]) => numbers.includes(key.replace("-", "")));
  for (const key of numbers) if (key.startsWith("c.")) list.push([`-${key}`, `${columns[key].title}, high first`], [key, `${columns[key].title}, low first`]);
  const now = state.one("sort") || (list[0] ? (numbers.includes("difficulty") ? "-difficulty" : "confidence") : "");
  $("sort").replaceChildren(...(list.length ? list : [["", "as in the file"]]).map(([value, title]) => el("option", { value }, title)));
  $("sort").value = now;
  grid.sort = now.replace("-", "");
}

let tagged = 0, asking = false, dirty = false;
async function refresh(keepPlace) {
  // Whether its answer was shown: not if something newer was asked meanwhile.
  const mine = ++asked;
  abort && abort.abort();
  abort = new AbortController();
  asking = true; dirty = false;
  try {
    const query = state.query(), answer = await net.get("find", state.query(state.ASIDE, rail.openColumns()), abort.signal);
    if (mine !== asked) return false;
    found = answer;
    keepPlace = keepPlace && grid.query === query;
    show(keepPlace);
  } catch (error) {
    if (mine === asked && error.name !== "AbortError") { asking = false; complain(error); }
    return false;
  }
  asking = false;
  drawer.relocate(!keepPlace).catch(complain);
  if (dirty) refresh(true);
  return true;
}

function tagsChanged() {
  // Quick tags share one question; one that is on its way is not given up for the next, else none would be answered.
  if (asking) dirty = true; else refresh(true);
}

function show(keepPlace) {
  notice("error", null);
  columns = Object.fromEntries(found.columns.map((c) => [c.key, c]));
  tagged = found.tagged;
  picks(); sorts();
  const scope = state.values("split").length ? state.values("split").reduce((sum, s) => sum + (about.splits[s] || 0), 0) : about.n;
  $("count").replaceChildren(whole(found.count), " ", el("span", {}, `of ${whole(scope)} samples`));
  $("export").textContent = `Export ${whole(found.count)}`;
  const on = state.filters().filter(([key]) => key !== "split").length;
  $("filters").textContent = on ? `Filters, ${on} on` : "Filters";
  const chipped = [$("chips"), $("nothing"), $("grid")].find((box) => box.contains(document.activeElement));
  const place = [...$("chips").children].indexOf(document.activeElement);
  chips();
  rail.show(about, columns, found);
  why.show(columns);
  selection.draw();
  nothing();
  if (!keepPlace || grid.count !== found.count || state.values("tag").length) grid.show(found.count, keepPlace);
  if (chipped && (document.activeElement === document.body || !document.activeElement.checkVisibility())) ($("chips").children[Math.min(Math.max(place, 0), $("chips").children.length - 1)] || $("count")).focus();
}

function chipWords(key, value) {
  const column = columns[key];
  if (key === "search") return `id has “${value}”`;
  if (key === "tag") return value === "any" ? "tagged" : value === "none" ? "not tagged" : `tagged ${value}`;
  if (key === "disagree") return "models disagree";
  if (key === "cells") { const a = state.one("model") || Object.keys(about.models)[0], b = state.one("with"); return { rr: "both right", rw: `only ${a} right`, wr: `only ${b} right`, ww: "both wrong" }[value] || value; }
  if (key === "outcome") return value;
  if (key === "lasso") return "lassoed on the map";
  if (key === "other") return `${state.one("with")} ${rail.rangeWords("confidence", value, columns.confidence)} sure`;
  if (key === "surer") return `${value.startsWith("..") ? state.one("model") || Object.keys(about.models)[0] : state.one("with")} surer by ${Math.round(100 * Math.abs(parseFloat(value.replace("..", ""))))} points`;
  if (!column) return `${key} ${value}`;
  if (column.kind === "number") return `${inside(column)} ${rail.rangeWords(key, value, column)}`;
  const facet = found.facets[key], name = facet && facet.values.find((v) => v.value === value);
  const word = value === "" ? "none" : name ? name.name : value;
  return key === "verdict" ? `looks ${rail.looks(word)}` : `${inside(column)} ${word}`;
}

function chip(key, value) {
  const words = chipWords(key, value);
  return el("button", { type: "button", class: "chip", "aria-label": `Remove the filter: ${words}`, onclick: () => state.set({ [key]: state.values(key).filter((v) => v !== value) }) }, words, " ×");
}

function chips() {
  $("chips").replaceChildren(...state.filters().flatMap(([key, list]) => list.map((value) => chip(key, value))));
}

function nothing() {
  const box = $("nothing");
  box.hidden = found.count > 0;
  $("grid").hidden = $("foot").hidden = found.count === 0;
  if (found.count) return;
  const blamed = found.blame ? state.values(found.blame).map((v) => chip(found.blame, v)) : [];
  box.replaceChildren(empty("No sample fits", found.blame ? "No sample has all of this. The filter that excludes most: " : "There is nothing here.", el("span", {}, blamed)));
}

function footer(first, last, rows) {
  const key_of = (...names) => names.flatMap((name) => [el("kbd", {}, name), " "]);
  const move = el("span", { class: "keys" }, key_of("←", "→"), "move, ", key_of("Enter"), "opens, ", key_of("R", "D", "K"), "tag, ", key_of("Ctrl Z"), "takes back.");
  const title = columns[grid.sort] ? inside(columns[grid.sort]) : "";
  const key = `${first} ${last} ${rows} ${title}`;
  if ($("foot").dataset.key === key) return;
  $("foot").dataset.key = key;
  const what = about.num_classes ? "Label" : "Right or wrong", label = title ? `${what} and ${title}` : what;
  const legend = !about.num_classes ? [`${label}. `] : Object.keys(about.models).length ? [`${label}; `, el("span", { class: "pr" }, "prediction"), " below if wrong. "] : [`${label}. `];
  $("foot").replaceChildren(`Rows ${whole(first)} to ${whole(Math.max(first, last))} of ${whole(rows)}. `, ...legend, move);
}

function changed(keys, back = false) {
  // By a step back or forward the open sample changes too; otherwise it changes the address itself.
  const reopen = back && keys.includes("sample");
  if (keys.length === 1 && keys[0] === "sample" && !back) return;
  if (keys.some((k) => !state.ASIDE.includes(k))) refresh().then((shown) => { if (reopen) sampleOfAddress(); else if (shown && keys.some((k) => ["model", "stage"].includes(k))) drawer.reload(); });
  else if (reopen) sampleOfAddress();
  if (keys.every((k) => state.ASIDE.includes(k)) && keys.some((k) => ["panel", "colour"].includes(k))) why.show();
  view();
}

function sampleOfAddress() {
  if (state.one("sample")) openFromAddress(true); else if (drawer.isOpen()) drawer.close();
}

function view() {
  const comparing = state.one("view") === "compare" && Object.keys(about.models).length > 1;
  $("cmp").hidden = !comparing;
  $("mainv").hidden = comparing;
  $("compare").textContent = comparing ? "Samples" : "Compare";
  $("model-pick").hidden = comparing || !Object.keys(about.models).length;
  if (comparing) compare.show(about, (row) => { state.set({ view: null }); drawer.show(row, null); });
  else grid.resize();
}

function open(position, row) {
  // What was seen and clicked, whatever stands there by now.
  if (row !== undefined) drawer.show(+row, position); else drawer.open(position);
}

async function openFromAddress(anyway = false) {
  const sample = state.one("sample");
  if (!sample) return;
  const [split, ...rest] = sample.split("/");
  const more = [["split", split], ["id", rest.join("/")], ...state.values("split").map((s) => ["in", s])];
  try {
    const place = await net.get("locate", state.query([...state.ASIDE, "split"], more));
    if (anyway ? state.one("sample") === sample : !drawer.isOpen()) await drawer.show(place.row, place.position); // unless one was opened meanwhile
  } catch (error) { complain(error); }
}

function notice(key, node) {
  const old = document.querySelector(`[data-notice="${key}"]`);
  if (old && old.contains(document.activeElement)) $("count").focus();
  if (!node) { if (old) old.remove(); return; }
  node.dataset.notice = key;
  if (old) old.replaceWith(node); else $("notices").append(node);
}

function notices() {
  if (about.pictures) notice("pictures", el("p", {}, about.pictures));
  about.missing.forEach((m, k) => notice(`missing${k}`, el("p", {}, el("b", {}, `${m.what} missing. `), m.why, " ", el("code", {}, m.command))));
  if (about.num_classes > 1000) notice("classes", el("p", {}, `${whole(about.num_classes)} classes: the most frequent are listed, any other is found by typing its name.`));
}

function complain(error) {
  if (error.name === "AbortError" || error instanceof TypeError) return;
  const start_again = el("button", { type: "button", class: "lnk", onclick: () => state.open("") }, "Show everything");
  notice("error", el("p", {}, el("span", { class: "pr" }, error.message), " ", start_again));
}

const unsaved = () => notice("unsaved", outbox.notice());

function lost() {
  const at = net.lastSaved(), words = at ? ` Tags up to ${at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })} are saved.` : "";
  notice("lost", el("div", { class: "empty" }, el("h3", {}, "Connection lost"), el("p", {}, `The explorer was stopped.${words} Start it again with `, el("code", {}, `confide explore ${about.path}`), "; this page reconnects by itself.")));
}

function theme() {
  const root = document.documentElement, button = $("theme"), system = matchMedia("(prefers-color-scheme: dark)");
  try { const kept = localStorage.getItem("theme"); if (kept) root.dataset.theme = kept; } catch { /* a browser that keeps nothing follows the system */ }
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; try { localStorage.setItem("theme", root.dataset.theme); } catch { /* as above */ } name(); });
  system.addEventListener("change", name);
  name();
}

start().catch((error) => { $("notices").append(empty("The explorer could not start", error.message, "")); });
export { shown };
