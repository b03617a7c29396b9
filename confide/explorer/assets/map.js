// The map: every sample as a point by its features. A density for many, points for few; panned, enlarged, lassoed.
import { $, el, missing, number, tellAt, tellNothing, whole } from "./dom.js";
import { get, isGone } from "./net.js";
import * as state from "./state.js";

const WIDE = 640, HIGH = 480, MOST_CORNERS = 60;
const COLOURS = { gap: "confidence minus accuracy", difficulty: "difficulty", class: "class", tag: "tagged" };
let about, openRow = () => {}, complain = () => {}, panel = null, canvas = null, view = null, box = null, query = "", asked = 0, wait = 0, frame = 0, drawing = false, corners = null, image = null;

export function prepare(known, opens, complains) { about = known; openRow = opens; complain = complains; }

export async function show(node, asks) {
  panel = node; query = asks;
  if (!canvas || !panel.contains(canvas)) { box = null; view = null; panel.replaceChildren(el("p", { class: "sub" }, "The map is being computed; this happens once.")); }
  await ask();
}

async function ask() {
  const mine = ++asked, more = `${query ? "&" : ""}colour=${state.one("colour") || "gap"}${box ? `&box=${box.join(",")}` : ""}`;
  const found = await get("map", query + more);
  if (mine !== asked || !panel) return;
  if (found.missing) { panel.replaceChildren(missing(found.missing)); return; }
  if (found.computing) { setTimeout(() => { if (mine === asked && state.one("panel") === "map") ask().catch(complain); }, 700); return; }
  view = found;
  if (!box) box = ends(found.middle);
  if (!canvas || !panel.contains(canvas)) build();
  paint();
  words();
}

function build() {
  canvas = el("canvas", { width: WIDE, height: HIGH, tabindex: 0, role: "img", class: "map" });
  const colour = el("select", { "aria-label": "Colour by", onchange: (e) => { state.set({ colour: e.target.value }); } }, Object.entries(COLOURS).map(([key, title]) => el("option", { value: key }, title)));
  colour.value = state.one("colour") || "gap";
  const button = (text, label, f) => el("button", { type: "button", class: "btn", "aria-label": label, onclick: f }, text);
  const lasso = el("button", { type: "button", class: "btn", "aria-pressed": "false", onclick: () => { drawing = !drawing; lasso.setAttribute("aria-pressed", String(drawing)); canvas.classList.toggle("lasso", drawing); } }, "Lasso");
  const tools = el("div", { class: "row" }, el("label", { class: "pick" }, "Colour ", colour), lasso, button("−", "Smaller", () => zoom(1.4)), button("+", "Larger", () => zoom(1 / 1.4)), button("All", "All of the map", () => { box = ends(view.whole); later(); }));
  panel.replaceChildren(el("div", { class: "wide" }, tools, el("p", { class: "sub", id: "map-words", "aria-live": "polite" }), canvas, el("p", { class: "sub key", id: "map-key" })));
  canvas.addEventListener("pointerdown", press);
  canvas.addEventListener("pointermove", (e) => { if (!e.buttons) tellCell(e); });
  canvas.addEventListener("pointerleave", tellNothing);
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); const at = place(e); zoom(e.deltaY > 0 ? 1.25 : 0.8, at); }, { passive: false });
  canvas.addEventListener("keydown", (e) => {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
    if (by) { e.preventDefault(); e.stopPropagation(); move(0.1 * by[0] * (box[1] - box[0]), 0.1 * by[1] * (box[3] - box[2])); } else if (e.key === "+") zoom(0.8); else if (e.key === "-") zoom(1.25);
  });
}

const ends = (b) => [b.left, b.right, b.bottom, b.top];

const place = (e) => { const r = canvas.getBoundingClientRect(); return [box[0] + ((e.clientX - r.left) / r.width) * (box[1] - box[0]), box[3] - ((e.clientY - r.top) / r.height) * (box[3] - box[2])]; };

function press(e) {
  canvas.setPointerCapture(e.pointerId);
  const start = [e.clientX, e.clientY];
  let last = start, far = false;
  if (drawing) corners = [place(e)];
  const go = (m) => {
    if (Math.hypot(m.clientX - start[0], m.clientY - start[1]) > 4) far = true;
    if (drawing) { corners.push(place(m)); draw(); return; }
    const r = canvas.getBoundingClientRect();
    move(-((m.clientX - last[0]) / r.width) * (box[1] - box[0]), ((m.clientY - last[1]) / r.height) * (box[3] - box[2]));
    last = [m.clientX, m.clientY];
  };
  canvas.addEventListener("pointermove", go);
  canvas.addEventListener("pointerup", (up) => {
    canvas.removeEventListener("pointermove", go);
    if (drawing) finish(); else if (!far) pick(place(up));
  }, { once: true });
}

function finish() {
  const line = corners, step = Math.ceil(line.length / MOST_CORNERS);
  corners = null;
  const kept = line.filter((_, k) => k % step === 0);
  if (kept.length >= 3) state.set({ lasso: kept.map((c) => c.map((v) => Number(v.toPrecision(5))).join(",")).join(";") }); else draw();
}

function tellCell(e) {
  // How many samples lie in the cell under the pointer, and what gives it its colour.
  const [x, y] = place(e), b = view.box, column = Math.floor(((x - b.left) / (b.right - b.left)) * view.columns), row = Math.floor(((y - b.bottom) / (b.top - b.bottom)) * view.rows);
  const k = column >= 0 && column < view.columns ? view.cells.cell.indexOf(row * view.columns + column) : -1;
  if (k < 0) { tellNothing(); return; }
  const how = state.one("colour") || "gap", n = view.cells.n[k], value = view.cells.value[k];
  const words = value === null ? "" : how === "gap" ? `, confidence minus accuracy ${number(100 * value)} points` : how === "difficulty" ? `, difficulty ${number(value)}` : how === "class" ? `, mostly ${value < view.classes.length ? view.classes[value][1] ?? "none" : "others"}` : `, ${number(100 * value)} % tagged`;
  tellAt(`${whole(n)} ${n === 1 ? "sample" : "samples"}${words}`, { left: e.clientX, width: 0, top: e.clientY - 6 }, canvas);
}

function pick(at) {
  // The nearest point, where points are drawn; of a density, the place is enlarged.
  if (!view.points) { zoom(0.5, at); return; }
  const wide = box[1] - box[0], high = box[3] - box[2];
  let best = -1, least = 0.02 ** 2;
  view.points.x.forEach((x, k) => { const d = ((x - at[0]) / wide) ** 2 + ((view.points.y[k] - at[1]) / high) ** 2; if (d < least) { least = d; best = k; } });
  if (best >= 0) openRow(view.points.row[best]);
}

function move(dx, dy) { box = [box[0] + dx, box[1] + dx, box[2] + dy, box[3] + dy]; later(); }

function zoom(by, at = [(box[0] + box[1]) / 2, (box[2] + box[3]) / 2]) {
  box = [at[0] + by * (box[0] - at[0]), at[0] + by * (box[1] - at[0]), at[1] + by * (box[2] - at[1]), at[1] + by * (box[3] - at[1])];
  later();
}

function later() {
  // What is there is moved at once; what was not in sight is asked for when the hand rests.
  if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); });
  clearTimeout(wait);
  wait = setTimeout(() => ask().catch((error) => { if (!isGone(error)) complain(error); }), 140);
}

function colours() {
  const style = getComputedStyle(document.documentElement), read = (name) => { const c = style.getPropertyValue(name).trim(); return [1, 3, 5].map((k) => parseInt(c.slice(k, k + 2), 16)); };
  return { low: [0, 1, 2, 3, 4, 5].map((k) => read(`--s${k}`)), both: [0, 1, 2, 3, 4, 5, 6].map((k) => read(`--d${k}`)), names: ["--accent", "--c2", "--c3", "--c4", "--c5", "--grey"].map(read), ink: style.getPropertyValue("--ink").trim() };
}

function colourOf(value, how, all) {
  if (value === null) return all.names[5];
  if (how === "class") return all.names[Math.min(5, value)];
  if (how === "gap") { const step = Math.max(0, Math.min(6, Math.round(3 + 6 * value))); return step === 3 ? all.names[5] : all.both[step]; } // no gap is grey, not the ground: its density is to be seen
  if (how === "tag") return value > 0 ? all.names[0] : all.low[1];
  const span = view.high - view.low || 1;
  return all.low[Math.max(0, Math.min(5, Math.floor((6 * (value - view.low)) / span)))];
}

function paint() {
  // The density as a small picture of its cells, enlarged when it is drawn.
  const all = colours(), how = state.one("colour") || "gap", small = new OffscreenCanvas(view.columns, view.rows), pen = small.getContext("2d"), data = pen.createImageData(view.columns, view.rows);
  const most = Math.log1p(Math.max(...view.cells.n, 1));
  view.cells.cell.forEach((cell, k) => {
    const at = 4 * ((view.rows - 1 - Math.floor(cell / view.columns)) * view.columns + (cell % view.columns)), c = colourOf(view.cells.value[k], how, all);
    data.data.set([...c, 70 + 185 * (Math.log1p(view.cells.n[k]) / most)], at);
  });
  pen.putImageData(data, 0, 0);
  image = { small, box: [view.box.left, view.box.right, view.box.bottom, view.box.top], all, how };
  draw();
}

function draw() {
  const pen = canvas.getContext("2d"), x = (v) => ((v - box[0]) / (box[1] - box[0])) * WIDE, y = (v) => ((box[3] - v) / (box[3] - box[2])) * HIGH;
  pen.clearRect(0, 0, WIDE, HIGH);
  if (!image) return;
  if (view.points) {
    view.points.row.forEach((_, k) => { pen.fillStyle = `rgb(${colourOf(view.points.value[k], image.how, image.all)})`; pen.beginPath(); pen.arc(x(view.points.x[k]), y(view.points.y[k]), 3.5, 0, 7); pen.fill(); });
  } else {
    pen.imageSmoothingEnabled = false;
    const [l, r, b, t] = image.box;
    pen.drawImage(image.small, x(l), y(t), x(r) - x(l), y(b) - y(t));
  }
  const kept = state.one("lasso"), line = corners || (kept ? kept.split(";").map((c) => c.split(",").map(Number)) : null);
  if (line && line.length > 1) { pen.strokeStyle = image.all.ink; pen.lineWidth = 1.5; pen.beginPath(); line.forEach((c, k) => (k ? pen.lineTo(x(c[0]), y(c[1])) : pen.moveTo(x(c[0]), y(c[1])))); if (!corners) pen.closePath(); pen.stroke(); }
}

function words() {
  const how = state.one("colour") || "gap", much = view.points ? "Press a point to open its sample." : "A density: the stronger a cell, the more samples; press to enlarge.";
  const text = `${whole(view.n)} samples in sight, by ${view.method} of their features. ${much} Drag to move, wheel to enlarge; a lasso filters.`;
  $("map-words").textContent = text;
  canvas.setAttribute("aria-label", `Map of the samples by ${view.method} of their features, coloured by ${COLOURS[how]}: ${whole(view.n)} in sight. Filters at the left choose the same samples in words.`);
  const swatch = (name, title) => el("span", {}, el("i", { class: `sw ${name}` }), title, " ");
  const keys = { gap: [swatch("sd1", "below 0"), swatch("sg", "0"), swatch("sd5", "above 0: confidence minus accuracy, mean of a cell; of few samples it is chance")], difficulty: view.low === null ? ["No difficulty is known here."] : [swatch("ss1", number(view.low)), swatch("ss5", `${number(view.high)}: difficulty, mean of a cell`)], class: [...view.classes.map((c, k) => swatch(["", "s2", "s3", "s4", "s5"][k], c[1] ?? "none")), swatch("sg", "others")], tag: [swatch("", "tagged"), swatch("ss1", "not tagged")] };
  $("map-key").replaceChildren(...keys[how]);
}

