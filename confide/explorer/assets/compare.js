// Two models on the same samples: who is right, how sure, and the samples where it matters.
import { $, dataTable, el, percent, svg, when, whole } from "./dom.js";
import { get } from "./net.js";
import * as state from "./state.js";

let asked = 0, chosen = ["rw", "wr"];

export async function show(about, openRow) {
  const box = $("cmp"), mine = ++asked, models = Object.keys(about.models);
  const first = state.one("model") || models[0];
  let second = state.one("with");
  if (!second || second === first) second = models.find((m) => m !== first);
  const query = state.query([...state.ASIDE, "with", "cells", "disagree", "other", "surer", "sort"], [["with", second], ...chosen.map((c) => ["cell", c])]);
  let found = null, failure = null;
  try { found = await get("compare", query); } catch (error) { failure = error; }
  if (mine !== asked) return;
  const used = box.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  const rest = found ? el("div", { class: "cmpg" }, matrix(about, first, second, found, openRow), scatter(first, second, found), pairs(about, found, openRow)) : el("div", { class: "empty" }, el("h3", {}, "Nothing to compare"), el("p", {}, failure.message));
  box.replaceChildren(head(about, first, second, found), rest);
  if (used) ([...box.querySelectorAll("button, select")].find((b) => b.getAttribute("aria-label") === used) || $("hc")).focus({ preventScroll: true });
}

function head(about, first, second, found) {
  const pick = (name, value, skip, f) => el("select", { "aria-label": name, value, onchange: (e) => f(e.target.value) }, Object.keys(about.models).filter((m) => m !== skip).map((m) => el("option", { value: m }, m)));
  const a = pick("First model", first, second, (m) => state.set({ model: m })), b = pick("Second model", second, first, (m) => state.set({ with: m }));
  a.value = first; b.value = second;
  const words = found ? `, both ${when(found.stage_title)}, ${whole(found.n)} samples. They disagree on ${whole(found.disagree)}.` : "";
  const aside = found && found.left_aside.length ? el("p", { class: "sub" }, `Filters on ${found.left_aside.join(", ")} depend on a model and are left aside here.`) : null;
  return el("div", { class: "cmph" }, el("h2", { id: "hc", tabindex: "-1" }, "Compare two models"), el("p", { class: "who" }, el("span", {}, el("i", { class: "sw" }), a), " against ", el("span", {}, el("i", { class: "sw s3" }), b), words), aside);
}

function matrix(about, first, second, found, openRow) {
  const cell = (name, words) => el("td", {}, el("button", { type: "button", "aria-pressed": String(chosen.includes(name)), "aria-label": `${words}: ${whole(found.cells[name])} samples`, onclick: () => { chosen = chosen.includes(name) ? chosen.filter((c) => c !== name) : [...chosen, name]; show(about, openRow); } }, whole(found.cells[name])));
  const row = (title, names, words) => el("tr", {}, el("th", { scope: "row" }, ...title), cell(names[0], words[0]), cell(names[1], words[1]));
  const difference = found.cells.wr - found.cells.rw, better = difference > 0 ? second : first;
  let words = "Both have the same number right.";
  if (difference !== 0) words = found.p < 0.05 ? `${better} has ${whole(Math.abs(difference))} more right; chance alone would rarely do that (paired test, p ${found.p < 0.001 ? "< 0.001" : "= " + found.p.toFixed(3)}).` : `The difference of ${whole(Math.abs(difference))} is within chance (paired test, p = ${found.p === null ? "–" : found.p.toFixed(2)}).`;
  const show_grid = el("button", { type: "button", class: "btn", disabled: !chosen.length, onclick: () => state.set({ with: second, cells: chosen, view: null, outcome: null }) }, "Show these in the grid");
  return el("div", {}, el("h3", {}, "Who is right"), el("table", { class: "mx" }, el("thead", {}, el("tr", {}, el("td", {}), el("th", { scope: "col" }, el("code", {}, second), " right"), el("th", { scope: "col" }, "wrong"))), el("tbody", {}, row([el("code", {}, first), " right"], ["rr", "rw"], ["Both right", `Only ${first} right`]), row(["wrong"], ["wr", "ww"], [`Only ${second} right`, "Both wrong"]))), el("p", { class: "sub" }, `Press cells to choose their samples. ${words}`), show_grid);
}

function scatter(first, second, found) {
  const x = (p) => 36 + 250 * p, y = (p) => 258 - 250 * p;
  const chart = svg("svg", { viewBox: "0 0 300 300", role: "img", "aria-label": `Confidence of ${first} against that of ${second} on ${whole(found.disagree)} samples where they disagree; ${whole(found.cells.rw)} right by the first only, ${whole(found.cells.wr)} by the second only` });
  for (const p of [0, 0.5, 1]) chart.append(svg("path", { class: "g", d: `M36 ${y(p)}H286` }), svg("path", { class: "g", d: `M${x(p)} 258V8` }), svg("text", { x: 30, y: y(p) + 4, class: "e" }, String(100 * p)), svg("text", { x: x(p), y: 274, class: "m" }, String(100 * p)));
  chart.append(svg("path", { class: "ref", d: "M36 258L286 8" }));
  for (const [who, name] of [[0, "kg"], [1, "k1"], [2, "k3"]]) chart.append(svg("path", { class: `pt ${name}`, d: found.dots.filter((d) => d[3] === who).map((d) => `M${x(d[1]).toFixed(1)} ${y(d[2]).toFixed(1)}h0`).join("") }));
  const short = (name) => (name.length > 26 ? name.slice(0, 25) + "…" : name);
  chart.append(svg("text", { x: 42, y: 20, class: "l" }, `${short(second)}, %`), svg("text", { x: 286, y: 292, class: "e l" }, `${short(first)}, %`));
  const part = found.disagree > found.dots.length ? ` ${whole(found.dots.length)} of ${whole(found.disagree)} are drawn.` : "";
  if (!found.disagree) return el("div", {}, el("h3", {}, "How sure, where they disagree"), el("div", { class: "empty" }, el("h3", {}, "They agree on every sample"), el("p", {}, "Choose another model or other filters.")));
  return el("div", {}, el("h3", {}, "How sure, where they disagree"), el("p", { class: "sub" }, `Each dot is a sample, coloured by the model that is right; grey where neither is.${part}`), chart,
    dataTable("Confidence where they disagree", [first, second, "Right"], () => found.dots.map((d) => [percent(d[1], 1), percent(d[2], 1), ["neither", first, second][d[3]]])));
}

function pairs(about, found, openRow) {
  const total = chosen.reduce((sum, c) => sum + found.cells[c], 0);
  const title = chosen.length === 2 && chosen.includes("rw") && chosen.includes("wr") ? `${whole(total)} samples, one model right` : `${whole(total)} samples in the chosen cells`;
  if (!total) return el("div", {}, el("h3", {}, title), el("div", { class: "empty" }, el("h3", {}, chosen.length ? "No sample lies in these cells" : "No cell is chosen"), el("p", {}, "Press another cell of the table.")));
  const predicted = (s, mark) => el("p", {}, el("i", { class: `sw ${mark}` }), el("span", { class: s.right ? null : "pr" }, s.name ?? "none"), el("em", {}, percent(s.confidence)));
  const picture = (p) => { const i = el("img", { src: `/api/picture?row=${p.row}&small=1`, alt: "", loading: "lazy" }); i.addEventListener("error", () => i.replaceWith(el("span", { class: "nopic" }, "no picture"))); return i; };
  const item = (p) => el("li", {}, el("button", { type: "button", "aria-label": `Open ${p.id}`, onclick: () => openRow(p.row) }, about.kind === "image" ? picture(p) : el("span", { class: "mono" }, p.id)), el("div", {}, el("p", { class: "lb" }, p.label ?? "none"), predicted(p.predictions[0], ""), predicted(p.predictions[1], "s3")));
  const note = total > found.pairs.length ? `Largest difference in confidence first, ${found.pairs.length} shown` : "Largest difference in confidence first";
  return el("div", {}, el("h3", {}, title), el("p", { class: "sub" }, note), el("ul", { class: "pairs" }, found.pairs.map(item)));
}
