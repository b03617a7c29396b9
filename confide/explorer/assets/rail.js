// The filter rail: brush histograms, facets with counts, the outcome switch.
import { $, el, number, shown, svg, tellAt, tellNothing, whole } from "./dom.js";
import { get } from "./net.js";
import * as state from "./state.js";

const BINS = 36, WIDTH = 232, FLOOR = 46, ROOM = 40;
const LISTS = { verdict: "Looks", label: "Label", prediction: "Predicted", split: "Split" };
const LOOKS = { "wrong label": "mislabelled" };
const plain = (value) => value.toFixed(12).replace(/\.?0+$/, ""); // a slider's number has no exponent
const opened = new Set();
const nodes = new Map();
let dragged = null; // the part whose brush is held: an answer that comes meanwhile must not replace it

export const looks = (word) => LOOKS[word] || word;
export const openColumns = () => [...opened].map((key) => ["open", key]);

export function show(about, columns, found) {
  const rail = $("rail"), clear = $("clear-filters");
  if (!clear) {
    rail.append(el("div", { class: "rh" }, el("h2", {}, "Filters"), el("button", { type: "button", class: "lnk", id: "clear-filters", onclick: state.clear }, "Clear all")));
  }
  const wanted = [["presets", () => presets(about, columns)]];
  for (const key of ["difficulty", "confidence", "trust", "loss", "changes"]) if (found.histograms[key]) wanted.push([key, () => brush(columns[key], found.histograms[key])]);
  if (found.facets.outcome) wanted.push(["outcome", () => outcome()]);
  for (const key of ["verdict", "label", "prediction"]) if (found.facets[key]) wanted.push([key, () => facet(columns[key], found.facets[key])]);
  if (Object.keys(about.splits).length > 1) wanted.push(["split", () => facet(columns.split, found.facets.split)]);
  wanted.push(["tag", () => tags(found.tags)]);
  wanted.push(["search", () => search()]);
  const own = about.columns.filter((c) => c.key.startsWith("c."));
  if (own.length) wanted.push(["own", () => ownColumns(own, found)]);
  const holding = document.activeElement && document.activeElement.closest && document.activeElement.closest("[data-part]");
  const used = holding && rail.contains(holding) ? document.activeElement : null;
  for (const [key, make] of wanted) {
    if ((key === "search" || key === dragged) && nodes.has(key)) continue; // someone may be typing or dragging
    const fresh = make();
    fresh.dataset.part = key;
    if (nodes.has(key)) nodes.get(key).replaceWith(fresh); else rail.append(fresh);
    nodes.set(key, fresh);
  }
  for (const [key, node] of nodes) if (!wanted.some(([k]) => k === key)) { node.remove(); nodes.delete(key); }
  if (used && !used.isConnected) goOn(used, nodes.get(holding.dataset.part) || rail);
}

function goOn(used, part) {
  // The keyboard stays at the same control, or near it where that is gone; what is half typed stays typed.
  const all = [...part.querySelectorAll("[data-focus]")], again = all.find((n) => n.dataset.focus === used.dataset.focus);
  if (again && again.type === "search") again.value = used.value;
  (again || all[0] || $("clear-filters")).focus({ preventScroll: true });
  if (again && again.type === "search") again.setSelectionRange(used.selectionStart, used.selectionEnd);
}

function presets(about, columns) {
  // Ready-made views of what goes wrong with confidence; each replaces the filters but the split.
  const models = Object.keys(about.models), list = [];
  if (columns.confidence && columns.outcome) list.push(["Confidently wrong", { outcome: "wrong", confidence: "0.9..", sort: "-confidence" }], ["Timidly right", { outcome: "right", confidence: "..0.5", sort: "confidence" }]);
  if (about.mislabelled) list.push(["Mislabelled", { verdict: "wrong label" }]);
  if (columns.changes) list.push(["Changed its mind", { changes: "1..", sort: "-changes" }]);
  else if (models.length > 1 && columns.prediction) list.push(["Models disagree", { with: models.find((m) => m !== (state.one("model") || models[0])), disagree: "1" }]);
  const plain = Object.fromEntries(state.filters().filter(([key]) => key !== "split").map(([key]) => [key, null]));
  const button = ([title, filters]) => el("button", { type: "button", class: "preset", "data-focus": title, onclick: () => state.set({ ...plain, ...filters }) }, title);
  return el("div", { class: list.length ? "flt presets" : "" }, list.length ? el("h3", {}, "Look at") : "", el("div", {}, list.map(button)));
}

function range(column) {
  const text = state.one(column.key);
  if (!text) return null;
  const [low, high] = text.split("..");
  return [low === "" ? null : +low, high === "" ? null : +high];
}

export function rangeWords(key, text, column) {
  const [low, high] = text.split("..");
  if (high === "" && column && key !== "confidence" && +low >= column.high) return `${shown(key, +low)}+`;
  const a = low === "" ? shown(key, column ? column.low : 0) : shown(key, +low);
  const b = high === "" ? (key === "confidence" ? shown(key, 1) : shown(key, column ? column.high : 0) + "+") : shown(key, +high);
  return `${a} to ${b}`;
}

function brush(column, counts) {
  if (!counts.some(Boolean) && !state.one(column.key)) return el("div", { class: "flt" }, el("div", { class: "fh" }, el("h3", {}, column.title)), el("p", { class: "more-note" }, "no value fits"));
  const { key, low, high } = column, step = (high - low) / BINS, peak = Math.sqrt(Math.max(...counts, 1));
  const chosen = range(column);
  let from = chosen && chosen[0] !== null ? (chosen[0] - low) / step : 0, to = chosen && chosen[1] !== null ? (chosen[1] - low) / step : BINS;
  const words = el("span", {}, chosen ? rangeWords(key, state.one(key), column) : "any");
  const shade = svg("rect", { y: 2, height: 44, class: "shade" });
  const quiet = svg("path", { class: "fmute" }), loud = svg("path", {});
  const handle = (name) => svg("g", { class: "handle", tabindex: 0, role: "slider", "aria-label": `${column.title}, ${name}`, "data-focus": `${key} ${name}` },
    svg("path", { class: "k1", d: "M0 2V46", "stroke-width": 1.5 }), svg("rect", { class: "f1", x: -4, y: 40, width: 8, height: 10, rx: 2 }), svg("rect", { class: "touch", x: -14, y: 0, width: 28, height: 54 }));
  const left = handle("at least"), right = handle("at most");
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} 54`, class: "brush", role: "group" }, shade, quiet, loud, svg("path", { class: "ax", d: `M0 ${FLOOR}H${WIDTH}` }), left, right);
  const text = () => `${from <= 0 ? "" : tidy(low + from * step)}..${to >= BINS ? "" : tidy(low + to * step)}`;
  function draw() {
    const active = from > 0 || to < BINS, x = (k) => Math.max(0, Math.min(WIDTH, (k / BINS) * WIDTH));
    const bar = (c, k) => { const h = c ? Math.max(1.5, (ROOM * Math.sqrt(c)) / peak) : 0; return h ? `M${(x(k) + 0.5).toFixed(1)} ${(FLOOR - h).toFixed(1)}h${(WIDTH / BINS - 1).toFixed(1)}v${h.toFixed(1)}h-${(WIDTH / BINS - 1).toFixed(1)}z` : ""; };
    const inside = (k) => k + 0.5 > from && k + 0.5 < to;
    quiet.setAttribute("d", counts.map((c, k) => (active && !inside(k) ? bar(c, k) : "")).join(""));
    loud.setAttribute("d", counts.map((c, k) => (!active || inside(k) ? bar(c, k) : "")).join(""));
    loud.setAttribute("class", active ? "f1" : "fg");
    shade.setAttribute("x", x(from)); shade.setAttribute("width", active ? Math.max(0, x(to) - x(from)) : 0);
    left.setAttribute("transform", `translate(${x(from)} 0)`); right.setAttribute("transform", `translate(${x(to)} 0)`);
    chart.classList.toggle("on", active);
    for (const [node, k] of [[left, from], [right, to]]) {
      node.setAttribute("aria-valuemin", plain(low)); node.setAttribute("aria-valuemax", plain(high));
      node.setAttribute("aria-valuenow", plain(low + Math.max(0, Math.min(BINS, k)) * step));
      node.setAttribute("aria-valuetext", shown(key, low + Math.max(0, Math.min(BINS, k)) * step));
    }
    words.textContent = active ? rangeWords(key, text(), column) : "any";
    chart.setAttribute("aria-label", `${column.title}: histogram of the samples that fit the other filters, selected ${words.textContent}`);
  }
  const commit = () => { const t = text(); state.set({ [key]: t === ".." ? null : t }); };
  const place = (e) => { const box = chart.getBoundingClientRect(); return Math.max(0, Math.min(BINS, Math.round(((e.clientX - box.left) / box.width) * BINS))); };
  let held = null, start = 0;
  chart.addEventListener("pointerdown", (e) => {
    chart.setPointerCapture(e.pointerId);
    start = place(e);
    dragged = chart.closest("[data-part]").dataset.part;
    const near = (k) => Math.abs(k - start) <= 1.5;
    held = near(from) && (from > 0 || start <= 1) ? "left" : near(to) && (to < BINS || start >= BINS - 1) ? "right" : "new";
    e.preventDefault();
  });
  chart.addEventListener("pointerleave", tellNothing);
  chart.addEventListener("pointermove", (e) => {
    if (!held) {
      const box = chart.getBoundingClientRect(), k = Math.max(0, Math.min(BINS - 1, Math.floor(((e.clientX - box.left) / box.width) * BINS)));
      tellAt(`${shown(key, low + k * step)} to ${shown(key, low + (k + 1) * step)}: ${whole(counts[k])}`, { left: box.left + ((k + 0.5) / BINS) * box.width, width: 0, top: box.top }, chart);
      return;
    }
    const at = place(e);
    if (held === "new") { from = Math.min(start, at); to = Math.max(start, at); }
    else if (held === "left") from = Math.min(at, to - 1); else to = Math.max(at, from + 1);
    if (to - from < 1) to = Math.min(BINS, from + 1);
    draw();
  });
  chart.addEventListener("pointerup", (e) => {
    if (!held) return;
    if (held === "new" && place(e) === start) { from = 0; to = BINS; } // a click beside the handles clears
    held = dragged = null; draw(); commit();
  });
  chart.addEventListener("pointercancel", () => { held = dragged = null; });
  for (const [node, name] of [[left, "left"], [right, "right"]]) node.addEventListener("keydown", (e) => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 6, PageDown: -6 }[e.key];
    if (!by) return;
    e.preventDefault();
    if (name === "left") from = Math.max(0, Math.min(Math.round(from) + by, to - 1)); else to = Math.min(BINS, Math.max(Math.round(to) + by, from + 1));
    draw(); commit();
  });
  draw();
  return el("div", { class: "flt" }, el("div", { class: "fh" }, el("h3", {}, column.title), words), chart);
}

const tidy = (value) => String(Number(value.toPrecision(5)));

function outcome() {
  const now = state.one("outcome") || "any";
  const button = (word, title) => el("button", { type: "button", "aria-pressed": String(now === word), "data-focus": word, onclick: () => state.set({ outcome: word === "any" ? null : word }) }, title);
  return el("fieldset", { class: "flt" }, el("legend", {}, "Outcome"), el("div", { class: "seg" }, button("any", "Any"), button("right", "Right"), button("wrong", "Wrong")));
}

function facet(column, found, title) {
  const top = Math.max(...found.values.map((v) => v.count), 1), list = state.values(column.key);
  const line = (value, name, count) => {
    const bar = el("b", {});
    bar.style.setProperty("--w", `${Math.round((100 * count) / top)}%`);
    return el("label", { title: name }, el("input", { type: "checkbox", checked: list.includes(value), "data-focus": `${column.key} ${value}`, onchange: () => state.toggle(column.key, value) }), el("span", {}, name), bar, el("em", {}, whole(count)));
  };
  const box = el("fieldset", { class: "flt" }, el("legend", {}, title || LISTS[column.key] || column.title));
  found.values.forEach((v) => box.append(line(v.value, column.key === "verdict" ? looks(v.name) : v.name, v.count)));
  if (found.none && column.key !== "split") box.append(line("", "none", found.none));
  const more = found.distinct - found.values.length;
  if (more > 0 && column.kind === "class") box.append(finder(column.key, more));
  else if (more > 0) box.append(el("p", { class: "more-note" }, `${whole(more)} more values`));
  if (!found.values.length && !found.none) box.append(el("p", { class: "more-note" }, "no value fits"));
  return box;
}

export function finder(key, more) {
  // Classes beyond the listed: typed, found by the server.
  const list = el("datalist", { id: `found-${key}` });
  const input = el("input", { type: "search", list: list.id, placeholder: `${whole(more)} more classes: type a name`, "aria-label": `Find a class for ${key}`, "data-focus": `${key} finder` });
  let known = new Map(), asked = 0;
  const take = (meant) => {
    // "car" may be the beginning of "carrot": it is taken when chosen from the list or left, not while it is typed.
    const label = known.get(input.value), text = input.value.toLowerCase();
    if (label === undefined || (!meant && [...known.keys()].some((name) => name !== input.value && name.toLowerCase().startsWith(text)))) return false;
    input.value = "";
    state.set({ [key]: [...new Set([...state.values(key), label])] });
    return true;
  };
  input.addEventListener("change", () => take(true));
  input.addEventListener("input", async (e) => {
    const mine = ++asked;
    if (take(e.inputType === "insertReplacementText")) return;
    const found = await get("classes", new URLSearchParams({ text: input.value })).catch(() => null);
    if (!found || mine !== asked) return; // an answer to fewer letters, come late
    if (!input.isConnected) { const again = document.querySelector(`[data-focus="${key} finder"]`); if (again && again.value) again.dispatchEvent(new Event("input")); return; }
    known = new Map(found.classes.map((c) => [c.name, String(c.label)]));
    list.replaceChildren(...found.classes.map((c) => el("option", { value: c.name })));
    take();
  });
  return el("div", { class: "finder" }, input, list);
}

function tags(found) {
  const list = state.values("tag"), top = Math.max(...Object.values(found), 1);
  const box = el("fieldset", { class: "flt" }, el("legend", {}, "Tag"));
  for (const word of ["relabel", "drop", "keep", "note"]) {
    const count = found[word] || 0, bar = el("b", {});
    if (!count && !list.includes(word)) continue;
    bar.style.setProperty("--w", `${Math.round((100 * count) / top)}%`);
    box.append(el("label", {}, el("input", { type: "checkbox", checked: list.includes(word), "data-focus": word, onchange: () => state.toggle("tag", word) }), el("span", {}, word), bar, el("em", {}, whole(count))));
  }
  if (box.children.length === 1) box.append(el("p", { class: "more-note" }, "nothing tagged yet"));
  return box;
}

function search() {
  let wait;
  const input = el("input", { type: "search", value: state.one("search") || "", placeholder: "part of an id", "aria-label": "Find by id", "data-focus": "search" });
  input.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(() => state.set({ search: input.value || null }), 200); });
  state.watch((changed) => { if (changed.includes("search") && document.activeElement !== input) { clearTimeout(wait); input.value = state.one("search") || ""; } });
  return el("div", { class: "flt finder" }, el("h3", {}, "Id"), input);
}

function ownColumns(columns, found) {
  const box = el("div", { class: "flt own" }, el("h3", {}, "Columns of the data"));
  for (const column of columns) {
    const isOpen = opened.has(column.key), body = el("div", {});
    const details = el("details", {}, el("summary", { "data-focus": column.key }, column.title, state.values(column.key).length ? " (on)" : ""), body);
    details.open = isOpen;
    details.addEventListener("toggle", () => {
      if (details.open === opened.has(column.key)) return;
      if (details.open) opened.add(column.key); else opened.delete(column.key);
      if (details.open) document.dispatchEvent(new CustomEvent("columns"));
    });
    if (isOpen && column.kind === "number" && found.histograms[column.key]) body.append(brush(column, found.histograms[column.key]));
    else if (isOpen && column.kind === "text") body.append(contains(column));
    else if (isOpen && found.facets[column.key]) body.append(facet(column, found.facets[column.key], column.title));
    box.append(details);
  }
  return box;
}

function contains(column) {
  const input = el("input", { type: "search", value: state.one(column.key) || "", placeholder: "contains", "aria-label": `${column.title} contains`, "data-focus": `${column.key} contains` });
  input.addEventListener("change", () => state.set({ [column.key]: input.value || null }));
  return el("div", { class: "finder" }, input);
}

export { number };
