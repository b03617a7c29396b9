// Two models on the same samples: who is right, who is surer, and the samples where it matters.
import { $, dataTable, el, percent, shorten, svg, tell, when, whole } from "./dom.js";
import { get } from "./net.js";
import * as state from "./state.js";
import { points } from "./why.js";

const CELLS = 25, REACH = 9; // cells of the density on a side; px within which a dot is meant
let asked = 0, chosen = ["rw", "wr"], area = null;

export async function show(about, openRow) {
  const box = $("cmp"), mine = ++asked, models = Object.keys(about.models);
  const first = state.one("model") || models[0];
  let second = state.one("with");
  if (!second || second === first) second = models.find((m) => m !== first);
  const more = [["with", second], ...chosen.map((c) => ["cell", c]), ...(area ? [["area", area.join(",")]] : [])];
  const query = state.query([...state.ASIDE, "with", "cells", "disagree", "other", "surer", "sort"], more);
  let found = null, failure = null;
  try { found = await get("compare", query); } catch (error) { failure = error; }
  if (mine !== asked) return;
  const pair = { about, openRow, first, second, found, colours: [first, second].map((m) => 1 + (models.indexOf(m) % 5)) };
  const used = box.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  const rest = found ? el("div", { class: "cmpg" }, el("div", {}, matrix(pair), surer(pair)), scatter(pair), pairs(pair)) : el("div", { class: "empty" }, el("h2", {}, "Nothing to compare"), el("p", {}, failure.message));
  box.replaceChildren(head(pair), rest);
  if (used) ([...box.querySelectorAll("button, select")].find((b) => b.getAttribute("aria-label") === used) || $("hc")).focus({ preventScroll: true });
}

// The shape of the model that is right, in its colour: a disc for the first, a square for the second, a cross for neither.
function sign(who, colour) {
  const shape = [svg("path", { class: "kg ln", d: "M2 2L8 8M8 2L2 8" }), svg("circle", { class: `f${colour}`, cx: 5, cy: 5, r: 4.2 }), svg("rect", { class: `f${colour}`, x: 1, y: 1, width: 8, height: 8 })][who];
  return svg("svg", { viewBox: "0 0 10 10", class: "sign", "aria-hidden": "true" }, shape);
}

function head({ about, first, second, found, colours }) {
  const pick = (name, value, skip, f) => el("select", { "aria-label": name, value, onchange: (e) => { area = null; f(e.target.value); } }, Object.keys(about.models).filter((m) => m !== skip).map((m) => el("option", { value: m }, m)));
  const a = pick("First model", first, second, (m) => state.set({ model: m })), b = pick("Second model", second, first, (m) => state.set({ with: m }));
  a.value = first; b.value = second;
  const words = found ? `, both ${when(found.stage_title)}, ${whole(found.n)} samples. They disagree on ${whole(found.disagree)}.` : "";
  const aside = found && found.left_aside.length ? el("p", { class: "sub" }, `Filters on ${found.left_aside.join(", ")} depend on a model and are left aside here.`) : null;
  return el("div", { class: "cmph" }, el("h1", { id: "hc", tabindex: "-1" }, "Compare two models"), el("p", { class: "who" }, el("span", {}, sign(1, colours[0]), a), " against ", el("span", {}, sign(2, colours[1]), b), words), aside);
}

function inGrid(second, filters) {
  state.set({ with: second, view: null, outcome: null, confidence: null, other: null, surer: null, cells: null, ...filters });
}

function matrix({ about, first, second, found, openRow }) {
  const cell = (name, words) => el("td", {}, el("button", { type: "button", "aria-pressed": String(chosen.includes(name)), "aria-label": `${words}: ${whole(found.cells[name])} samples`, onclick: () => { chosen = chosen.includes(name) ? chosen.filter((c) => c !== name) : [...chosen, name]; show(about, openRow); } }, whole(found.cells[name])));
  const row = (title, names, words) => el("tr", {}, el("th", { scope: "row" }, ...title), cell(names[0], words[0]), cell(names[1], words[1]));
  const difference = found.cells.wr - found.cells.rw, better = difference > 0 ? second : first;
  let words = "Both have the same number right.";
  if (difference !== 0) words = found.p < 0.05 ? `${better} has ${whole(Math.abs(difference))} more right; chance alone would rarely do that (paired test, p ${found.p < 0.001 ? "< 0.001" : "= " + found.p.toFixed(3)}).` : `The difference of ${whole(Math.abs(difference))} is within chance (paired test, p = ${found.p === null ? "–" : found.p.toFixed(2)}).`;
  const brushed = area ? { confidence: `${area[0]}..${area[1]}`, other: `${area[2]}..${area[3]}` } : {};
  const show_grid = el("button", { type: "button", class: "btn", disabled: !chosen.length, onclick: () => inGrid(second, { cells: chosen, ...brushed }) }, "Show these in the grid");
  return el("div", {}, el("h2", {}, "Who is right"), el("table", { class: "mx" }, el("thead", {}, el("tr", {}, el("td", {}), el("th", { scope: "col" }, el("code", {}, second), " right"), el("th", { scope: "col" }, "wrong"))), el("tbody", {}, row([el("code", {}, first), " right"], ["rr", "rw"], ["Both right", `Only ${first} right`]), row(["wrong"], ["wr", "ww"], [`Only ${second} right`, "Both wrong"]))), el("p", { class: "sub" }, `Press cells to choose their samples. ${words}`), show_grid);
}

function surer({ first, second, found }) {
  const g = found.gap;
  if (!g) return "";
  const beyond = g.low * g.high > 0, size = points(Math.abs(g.change), false), much = Number(size) ? `${size} points ${g.change > 0 ? "higher" : "lower"} for ${second} than for ${first}` : `the same for ${second} and ${first}`, words = `Confidence minus accuracy is ${much} (difference ${points(g.low)} to ${points(g.high)})${beyond ? "." : ", which may be chance."}`;
  const row = (name, k, cells, range) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, name)), el("td", {}, percent(g.confidence[k], 1)), el("td", {}, percent(g.accuracy[k], 1)), el("td", {}, points(g.confidence[k] - g.accuracy[k])), el("td", {}, el("button", { type: "button", class: "lnk", "aria-label": `${whole(g.surer_wrong[k])} samples where ${name} is surer by ten points and wrong`, disabled: !g.surer_wrong[k], onclick: () => inGrid(second, { cells, surer: range }) }, whole(g.surer_wrong[k]))));
  return el("div", { class: "surer" }, el("h2", {}, "Who is surer, and wronger"), el("table", {}, el("thead", {}, el("tr", {}, el("td", {}), ["Says", "Is right", "Gap", "Surer, wrong"].map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, row(first, 0, ["wr", "ww"], "..-0.1"), row(second, 1, ["rw", "ww"], "0.1.."))), el("p", { class: "sub" }, `${words} The last column counts where a model is wrong and surer than the other by ten points or more.`));
}

function scatter({ about, openRow, first, second, found, colours }) {
  const title = "How sure, where they disagree";
  if (!found.disagree) return el("div", {}, el("h2", {}, title), el("div", { class: "empty" }, el("h2", {}, "They agree on every sample"), el("p", {}, "Choose another model or other filters.")));
  const x = (p) => 36 + 250 * p, y = (p) => 258 - 250 * p, back = (v) => Math.max(0, Math.min(1, v)), dense = found.density.length > 0;
  const chart = svg("svg", { viewBox: "0 -12 300 312", role: "img", class: "brush2", "aria-label": `Confidence of ${first} against that of ${second} on ${whole(found.disagree)} samples where they disagree; ${whole(found.cells.rw)} right by the first only, ${whole(found.cells.wr)} by the second only` });
  for (const p of [0, 0.5, 1]) chart.append(svg("path", { class: "g", d: `M36 ${y(p)}H286` }), svg("path", { class: "g", d: `M${x(p)} 258V8` }), svg("text", { x: 30, y: y(p) + 4, class: "e" }, String(100 * p)), svg("text", { x: x(p), y: 274, class: "m" }, String(100 * p)));
  const frame = svg("rect", { class: "frame", hidden: true });
  chart.append(frame, svg("path", { class: "ref", d: "M36 258L286 8" })); // under the marks: those chosen stay as clear as the others
  const fills = ["fg", `f${colours[0]}`, `f${colours[1]}`];
  if (dense) {
    const most = Math.log1p(Math.max(...found.density.map((d) => d[2] + d[3] + d[4]))), side = 250 / CELLS;
    for (const [i, j, ...n] of found.density) chart.append(svg("rect", { class: fills[n.indexOf(Math.max(...n))], x: x(i / CELLS), y: y((j + 1) / CELLS), width: side - 0.5, height: side - 0.5, "fill-opacity": (0.15 + 0.85 * (Math.log1p(n[0] + n[1] + n[2]) / most)).toFixed(2) }));
  } else {
    const shapes = [(a, b) => `M${a - 3} ${b - 3}l6 6m0 -6l-6 6`, (a, b) => `M${a - 3.2} ${b}a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0`, (a, b) => `M${a - 3} ${b - 3}h6v6h-6z`];
    for (const who of [0, 1, 2]) chart.append(svg("path", { class: who ? `${fills[who]} mark` : "kg ln mark", d: found.dots.filter((d) => d[3] === who).map((d) => shapes[who](+x(d[1]).toFixed(1), +y(d[2]).toFixed(1))).join("") }));
  }
  if (area) { frame.removeAttribute("hidden"); for (const [key, value] of Object.entries({ x: x(area[0]), y: y(area[3]), width: x(area[1]) - x(area[0]), height: y(area[2]) - y(area[3]) })) frame.setAttribute(key, value); }
  chart.append(svg("text", { x: 36, y: -3, class: "l" }, `${shorten(second, 220)}, %`), svg("text", { x: 286, y: 292, class: "e l" }, `${shorten(first, 220)}, %`));
  const at = (e) => { const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(chart.getScreenCTM().inverse()); return [p.x, p.y]; };
  let start = null;
  chart.addEventListener("pointerdown", (e) => { start = at(e); chart.setPointerCapture(e.pointerId); });
  chart.addEventListener("pointermove", (e) => {
    if (!start) return;
    const here = at(e);
    frame.removeAttribute("hidden");
    for (const [key, value] of Object.entries({ x: Math.min(start[0], here[0]), y: Math.min(start[1], here[1]), width: Math.abs(here[0] - start[0]), height: Math.abs(here[1] - start[1]) })) frame.setAttribute(key, value);
  });
  chart.addEventListener("pointerup", (e) => {
    const here = at(e), [a, b] = [start, here];
    start = null;
    const tidy = (v) => Number(v.toFixed(3));
    if (Math.hypot(a[0] - b[0], a[1] - b[1]) > 5) area = [...[a[0], b[0]].map((v) => tidy(back((v - 36) / 250))).sort(), ...[a[1], b[1]].map((v) => tidy(back((258 - v) / 250))).sort()];
    else {
      const near = found.dots.map((d) => [Math.hypot(x(d[1]) - b[0], y(d[2]) - b[1]), d[0]]).sort((p, q) => p[0] - q[0])[0];
      if (near && near[0] < REACH) { openRow(near[1]); return; }
      area = null;
    }
    show(about, openRow);
  });
  const who = ["neither is right", `${first} is right`, `${second} is right`], mid = (k) => (k + 0.5) / CELLS;
  if (dense) tell(chart, found.density.map(([i, j, ...n]) => [x(mid(i)), y(mid(j)), `${first} about ${percent(mid(i))}, ${second} about ${percent(mid(j))}: ${n.map((m, k) => `${who[k]} ${whole(m)}`).join(", ")}`]));
  else tell(chart, found.dots.map((d) => [x(d[1]), y(d[2]), `${first} ${percent(d[1], 1)}, ${second} ${percent(d[2], 1)}: ${who[d[3]]}`, d[0]]), (value, e) => { if (e.type === "keydown") openRow(value[3]); }); // a press is part of the brush
  const key = el("p", { class: "sub signs" }, el("span", {}, sign(1, colours[0]), `${first} right`), " ", el("span", {}, sign(2, colours[1]), `${second} right`), " ", el("span", {}, sign(0), "neither"));
  const how = dense ? "So many that their density is drawn, in the colour of who is right most often." : "Press a mark to open its sample.";
  const clear = area ? el("button", { type: "button", class: "lnk", onclick: () => { area = null; show(about, openRow); } }, "Clear the area") : null;
  const numbers = dense ? dataTable("Confidence where they disagree", [first, second, "Neither right", "First right", "Second right"], () => found.density.map((d) => [`${(100 * d[0]) / CELLS} to ${(100 * (d[0] + 1)) / CELLS}`, `${(100 * d[1]) / CELLS} to ${(100 * (d[1] + 1)) / CELLS}`, ...d.slice(2)]))
    : dataTable("Confidence where they disagree", [first, second, "Right"], () => found.dots.map((d) => [percent(d[1], 1), percent(d[2], 1), ["neither", first, second][d[3]]]));
  return el("div", {}, el("h2", {}, title), el("p", { class: "sub" }, `${how} Drag over an area to choose its samples. `, clear), key, chart, numbers);
}

function pairs({ about, openRow, found, colours }) {
  const total = found.chosen, both = chosen.length === 2 && chosen.includes("rw") && chosen.includes("wr");
  const title = `${whole(total)} samples${both ? ", one model right" : " in the chosen cells"}${area ? ", in the area" : ""}`;
  if (!total) return el("div", {}, el("h2", {}, title), el("div", { class: "empty" }, el("h2", {}, chosen.length ? "No sample lies there" : "No cell is chosen"), el("p", {}, area ? "Choose another area of the chart." : "Press another cell of the table.")));
  const predicted = (s, k) => el("p", {}, sign(k + 1, colours[k]), el("span", { class: s.right ? null : "pr" }, s.name ?? (s.right ? "right" : "wrong")), el("em", {}, percent(s.confidence)));
  const picture = (p) => { const i = el("img", { src: `/api/picture?row=${p.row}&small=1`, alt: "", loading: "lazy" }); i.addEventListener("error", () => i.replaceWith(el("span", { class: "nopic" }, "no picture"))); return i; };
  const item = (p) => el("li", {}, el("button", { type: "button", "aria-label": `Open ${p.id}`, onclick: () => openRow(p.row) }, about.kind === "image" ? picture(p) : el("span", { class: "mono" }, p.id)), el("div", {}, el("p", { class: "lb" }, p.label ?? "none"), predicted(p.predictions[0], 0), predicted(p.predictions[1], 1)));
  const note = total > found.pairs.length ? `Largest difference in confidence first, ${found.pairs.length} shown` : "Largest difference in confidence first";
  return el("div", {}, el("h2", {}, title), el("p", { class: "sub" }, note), el("ul", { class: "pairs" }, found.pairs.map(item)));
}
