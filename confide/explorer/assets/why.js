// Is confidence right for what is in sight? A sentence, and what lies behind it: curves, confused classes, the map, slices.
import { $, MINUS, dataTable, el, empty, fixed, inside, missing, percent, svg, tell, tellAt, tellNothing, whole } from "./dom.js";
import * as map from "./map.js";
import { get, isGone } from "./net.js";
import { rangeWords } from "./rail.js";
import * as state from "./state.js";

const TITLES = { reliability: "Reliability", confusion: "Confused classes", map: "Map", slices: "Slices" };
const FEWEST = 15; // a bin with fewer samples is no dot
const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]; // between lines of a scale
let about, columns = {}, asked = 0, complain = () => {}, drawn = "";

export const points = (share, sign = true) => {
  const text = fixed(Math.abs(100 * share), 1);
  return `${share < 0 && Number(text) ? MINUS : sign && share > 0 ? "+" : ""}${text}`;
};
const between = (low, high) => `${points(low, low < 0)} to ${points(high, high < 0)}`;

export function prepare(known, complains, openRow) {
  about = known; complain = complains;
  map.prepare(known, openRow, complains);
  if (!Object.keys(about.models).length) return;
  $("why").hidden = false;
  $("panels").replaceChildren(...Object.entries(TITLES).filter(([key]) => key !== "confusion" || about.num_classes).map(([key, title]) => el("button", { type: "button", class: "lnk", "data-panel": key, "aria-expanded": "false", "aria-controls": "panel", onclick: () => state.set({ panel: state.one("panel") === key ? null : key }) }, title)));
}

export async function show(known = columns) {
  // For the rows that fit now; an answer to something older is dropped.
  columns = known;
  if ($("why").hidden) return;
  const mine = ++asked, panel = TITLES[state.one("panel")] ? state.one("panel") : null, query = state.query([...state.ASIDE, "sort"]);
  $("panels").querySelectorAll("button").forEach((b) => b.setAttribute("aria-expanded", String(b.dataset.panel === panel)));
  $("panel").hidden = !panel;
  if (panel !== drawn) { $("panel").replaceChildren(); drawn = panel; }
  try {
    const { reliability } = await get("reliability", query);
    if (mine !== asked) return;
    $("says").replaceChildren(...sentence(reliability));
    if (panel === "reliability") $("panel").replaceChildren(...curves(reliability));
    else if (panel === "confusion") { const found = await get("confusion", query); if (mine === asked) $("panel").replaceChildren(...matrix(found.confusion)); }
    else if (panel === "slices") await slices(query, () => mine === asked);
    else if (panel === "map") await map.show($("panel"), query);
  } catch (error) { if (mine === asked && !isGone(error)) complain(error); }
}

function sentence(r) {
  if (!r) return ["No sample here has both a label and a confidence."];
  const gap = r.confidence - r.accuracy, start = `Says ${percent(r.confidence, 1)}, is right ${percent(r.accuracy, 1)}`, interval = `(${between(r.low, r.high)})`;
  if (r.verdict === "chosen") return [`${start}. Chosen by ${r.by_label.join(" and ")}, which looks at the label: a calibrated model would show a gap here too.`];
  if (r.verdict === "chance") return [`${start}: the gap of ${points(gap)} points ${interval} is within chance (±${points(r.chance, false)}).`];
  if (r.verdict === "unclear") return [`${start}: a gap of ${points(gap)} points ${interval}, too few samples to tell it from none.`];
  const side = r.verdict === "over" ? el("b", { class: "pr" }, "overconfident") : el("b", { class: "ac" }, "underconfident");
  return [`${start}: `, side, ` by ${points(Math.abs(gap), false)} points ${interval}; chance alone stays within ±${points(r.chance, false)}.`];
}

function curves(r) {
  if (!r) return [empty("Nothing to judge", "The samples that fit have no label, or the model says no confidence.", "")];
  return [gapChart(r), reliabilityChart(r), riskChart(r)];
}

const figure = (title, sub, ...nodes) => el("figure", {}, el("h3", {}, title), el("p", { class: "sub" }, sub), ...nodes);

function gapChart(r) {
  const gap = r.confidence - r.accuracy, reach = Math.max(0.01, 1.15 * Math.max(Math.abs(r.low), Math.abs(r.high), Math.abs(gap), r.chance));
  const x = (v) => 150 + (130 * v) / reach, step = STEPS.find((s) => reach / s <= 3) || 0.5;
  const colour = r.verdict === "over" ? "w" : r.verdict === "under" ? "1" : "g";
  const chart = svg("svg", { viewBox: "0 0 300 96", role: "img", "aria-label": `Confidence minus accuracy: ${points(gap)} points, 95 % interval ${between(r.low, r.high)}; chance alone within ${points(r.chance, false)}` });
  if (r.verdict !== "chosen") chart.append(svg("path", { class: "fb", d: `M${x(-r.chance)} 18H${x(r.chance)}V66H${x(-r.chance)}z` }));
  for (let k = -Math.floor(reach / step); k <= reach / step; k++) chart.append(svg("path", { class: k ? "g" : "ax", d: `M${x(k * step)} 18V66` }), svg("text", { x: x(k * step), y: 82, class: "m" }, points(k * step).replace(/\.0$/, "")));
  chart.append(svg("path", { class: `k${colour}`, "stroke-width": 1.5, d: `M${x(r.low)} 42H${x(r.high)}` }), svg("circle", { class: `f${colour}`, cx: x(gap), cy: 42, r: 5 }), svg("text", { x: 4, y: 11, class: "l" }, "underconfident"), svg("text", { x: 296, y: 11, class: "e l" }, "overconfident"));
  tell(chart, [[x(gap), 42, `${points(gap)} points, 95 % ${between(r.low, r.high)}; by chance within ±${points(r.chance, false)}`]]);
  const zone = r.verdict === "chosen" ? "no zone of chance, for the filters look at the label" : "grey where chance alone would put it";
  return figure("Confidence minus accuracy", `Points, with 95 % interval; ${zone}. n = ${whole(r.n)}${r.units === null ? "" : ` in ${whole(r.units)} units drawn as one each, which intervals and chance count`}`, chart);
}

function reliabilityChart(r) {
  const x = (p) => 34 + 254 * p, y = (p) => 262 - 250 * p, bins = r.bins.filter((b) => b.n >= FEWEST), most = Math.max(...r.bins.map((b) => b.n));
  const out = bins.filter((b) => b.accuracy < b.band_low || b.accuracy > b.band_high).length, judged = r.verdict !== "chosen";
  const chart = svg("svg", { viewBox: "0 -12 300 312", role: "group", "aria-label": `Accuracy against confidence in ${bins.length} bins${judged ? `; ${out} lie outside the band of a calibrated model` : ""}` });
  for (const p of [0, 0.5, 1]) chart.append(svg("path", { class: "g", d: `M34 ${y(p)}H288` }), svg("text", { x: 28, y: y(p) + 4, class: "e" }, String(100 * p)), svg("text", { x: x(p), y: 278, class: "m" }, String(100 * p)));
  if (judged && bins.length) chart.append(svg("path", { class: "fb", d: `M${bins.map((b) => `${x(b.confidence)} ${y(b.band_high)}`).join("L")}L${[...bins].reverse().map((b) => `${x(b.confidence)} ${y(b.band_low)}`).join("L")}z` }));
  chart.append(svg("path", { class: "ref", d: `M${x(0)} ${y(0)}L${x(1)} ${y(1)}` }));
  for (const b of r.bins) chart.append(svg("path", { class: "fg thin", d: `M${x(b.low) + 1} 262v-${(26 * Math.sqrt(b.n / most)).toFixed(1)}h${x(b.high) - x(b.low) - 2}V262z` }));
  chart.append(svg("path", { class: "ax", d: "M34 262H288" }));
  if (bins.length > 1) chart.append(svg("path", { class: "ln k1", d: `M${bins.map((b) => `${x(b.confidence).toFixed(1)} ${y(b.accuracy).toFixed(1)}`).join("L")}` }));
  for (const b of bins) { // (low, high]: the low end belongs to the bin before
    const words = `Says ${percent(b.confidence, 1)}, is right ${percent(b.accuracy, 1)}, n = ${whole(b.n)}`, colour = !judged || (b.accuracy >= b.band_low && b.accuracy <= b.band_high) ? "1" : b.accuracy < b.band_low ? "w" : "1";
    chart.append(mark(x(b.confidence), y(b.accuracy), `f${colour}`, `${words}: show these samples`, () => state.set({ confidence: `${b.low && b.low * (1 + Number.EPSILON)}..${b.high}` })));
  }
  chart.append(svg("text", { x: 34, y: -3, class: "l" }, "Accuracy, %"), svg("text", { x: 288, y: 294, class: "e l" }, "Confidence, %"));
  const few = bins.length < r.bins.length ? ` Bins of fewer than ${FEWEST} samples have no dot.` : "";
  const band = judged ? "Grey: where a calibrated model would be, 95 %. " : "";
  return figure("Does it keep what it says?", `${band}Bars: how many (square roots). Press a dot to see its samples.${few}`, chart,
    dataTable("Bins of confidence", ["Bin", "Says", "Is right", "Band", "n"], () => r.bins.map((b) => [`${percent(b.low, 1)} to ${percent(b.high, 1)}`, percent(b.confidence, 1), percent(b.accuracy, 1), judged ? `${percent(b.band_low, 1)} to ${percent(b.band_high, 1)}` : "–", whole(b.n)])));
}

function mark(x, y, name, words, press) {
  const dot = svg("g", { class: "dot", tabindex: 0, role: "button", "aria-label": words, onclick: press, onkeydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); press(); } } },
    svg("circle", { class: "touch", cx: x, cy: y, r: 12 }), svg("circle", { class: name, cx: x, cy: y, r: 4.5 }));
  const say = () => tellAt(words, dot.getBoundingClientRect(), dot);
  for (const [event, f] of Object.entries({ pointerenter: say, pointerleave: tellNothing, focus: say, blur: tellNothing })) dot.addEventListener(event, f);
  return dot;
}

function riskChart(r) {
  const most = Math.max(0.001, ...r.risk.map((p) => p[1])), step = STEPS.find((s) => most / s <= 4) || 0.5, top = step * Math.ceil(most / step - 1e-9), x = (p) => 34 + 254 * p, y = (v) => 262 - (250 * v) / top;
  const chart = svg("svg", { viewBox: "0 -12 300 312", role: "img", "aria-label": `Error rate against the share accepted, the most confident first; ${percent(1 - r.accuracy, 1)} when all are accepted` });
  for (let v = 0; v <= top + 1e-9; v += step) chart.append(svg("path", { class: "g", d: `M34 ${y(v)}H288` }), svg("text", { x: 28, y: y(v) + 4, class: "e" }, (100 * v).toFixed(step < 0.01 ? 1 : 0)));
  for (const p of [0, 0.5, 1]) chart.append(svg("text", { x: x(p), y: 278, class: "m" }, String(100 * p)));
  chart.append(svg("path", { class: "ref", d: `M34 ${y(1 - r.accuracy)}H288` }), svg("path", { class: "ax", d: "M34 262H288" }), svg("path", { class: "ln k1", d: `M${r.risk.map((p) => `${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("L")}` }));
  chart.append(svg("text", { x: 34, y: -3, class: "l" }, "Error rate, %"), svg("text", { x: 288, y: 294, class: "e l" }, "Share accepted, %"));
  tell(chart, r.risk.map((p) => [x(p[0]), y(p[1]), `The surest ${percent(p[0], 1)}: ${percent(p[1], 2)} wrong, confidence at least ${percent(p[2], 1)}`]));
  return figure("Are its errors where it is unsure?", "The most confident are accepted first; dashed: all of them.", chart,
    dataTable("Risk and coverage", ["Accepted", "Error rate", "Confidence at least"], () => r.risk.filter((_, k) => k % 5 === 4 || k === r.risk.length - 1).map((p) => [percent(p[0]), percent(p[1], 2), percent(p[2], 1)])));
}

function matrix(found) {
  if (!found) return [empty("No confused classes", "There are no labels, or the model names no classes.", "")];
  const at = new Map(found.pairs.map((p) => [`${p.label} ${p.prediction}`, p]));
  const step = (confidence) => (confidence === null ? 0 : Math.max(0, Math.min(5, Math.floor((confidence - 0.4) * 10))));
  const cell = (a, b, k) => {
    if (a[0] === b[0]) return el("td", { class: "own" }, found.right[k] ? whole(found.right[k]) : "");
    const p = at.get(`${a[0]} ${b[0]}`);
    if (!p) return el("td", {});
    const on = state.one("label") === String(a[0]) && state.one("prediction") === String(b[0]), words = `${a[1]} taken for ${b[1]}: ${whole(p.count)}${p.confidence === null ? "" : `, ${percent(p.confidence)} sure on average`}`;
    return el("td", {}, el("button", { type: "button", class: `z${step(p.confidence)}`, "aria-label": words, title: words, "aria-pressed": String(on), onclick: () => state.set(on ? { label: null, prediction: null } : { label: a[0], prediction: b[0], outcome: null }) }, whole(p.count)));
  };
  const head = el("tr", {}, el("td", { class: "lbl" }, "Label ↓, predicted →"), found.classes.map((c) => el("th", { scope: "col", title: c[1] }, el("span", {}, c[1]))));
  const body = found.classes.map((a, k) => el("tr", {}, el("th", { scope: "row", title: a[1] }, a[1]), found.classes.map((b) => cell(a, b, k))));
  const shown = found.classes.length < found.num_classes ? ` The ${found.classes.length} classes with most errors of ${whole(found.num_classes)}.` : "";
  const key = el("p", { class: "sub key" }, "Mean confidence of the wrong: ", [0, 1, 2, 3, 4, 5].map((k) => el("i", { class: `z${k}` }, k === 0 ? "< 50" : k === 5 ? "≥ 90" : String(40 + 10 * k))), " %");
  return [el("div", { class: "wide" }, el("p", { class: "sub" }, `${whole(found.wrong)} wrong samples fit the other filters. Press a pair to see its samples.${shown}`), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Confused classes" }, el("table", { class: "conf" }, el("thead", {}, head), el("tbody", {}, body))), key)];
}

async function slices(query, current) {
  if (!$("panel").firstChild) $("panel").replaceChildren(el("p", { class: "sub" }, "Looking for slices …"));
  const { slices: found, missing: refused, computing } = await get("slices", query);
  if (!current()) return;
  if (computing) { setTimeout(() => { if (current()) slices(query, current).catch((error) => { if (!isGone(error)) complain(error); }); }, 700); return; }
  if (refused) { $("panel").replaceChildren(missing(refused)); return; }
  if (!found) { $("panel").replaceChildren(empty("Nothing to slice by", "There are no columns, classes or labels to make slices of.", "")); return; }
  const looked = `${whole(found.candidates)} slices of ${found.attributes.join(", ")} were looked at on one half of the samples; gaps are of the other half (p < 0.05 after Holm’s correction). What looks at the label makes no slices.`;
  if (!found.slices.length) { $("panel").replaceChildren(empty("No slice has a gap beyond chance", looked, "")); return; }
  const words = (key, value, names) => { const c = columns[key]; return !c ? names[key] ?? `${key} ${value}` : c.kind === "number" ? `${inside(c)} ${rangeWords(key, value, c)}` : c.kind === "class" ? `${inside(c)} ${names[key] ?? "none"}` : `${inside(c)} ${value || "none"}`; };
  const row = (s) => {
    const gap = s.confidence - s.accuracy, clear = Object.fromEntries(state.filters().filter(([key]) => key !== "split").map(([key]) => [key, null]));
    return el("tr", {}, el("th", { scope: "row" }, el("button", { type: "button", class: "lnk", onclick: () => state.set({ ...clear, ...s.filters }) }, Object.entries(s.filters).map(([k, v]) => words(k, v, s.names)).join(" and "))), el("td", {}, percent(s.confidence, 1)), el("td", {}, percent(s.accuracy, 1)), el("td", { class: gap > 0 ? "pr" : "ac" }, `${points(gap)} (${between(s.low, s.high)})`), el("td", {}, whole(s.n)));
  };
  $("panel").replaceChildren(el("div", { class: "wide" }, el("p", { class: "sub" }, looked), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Slices" }, el("table", { class: "slices" }, el("thead", {}, el("tr", {}, ["Slice", "Says", "Is right", "Gap, points", "n"].map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, found.slices.map(row))))));
}
