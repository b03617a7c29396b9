// Elements, drawings and numbers. Text of the data only ever becomes a text node.
export const THIN = "\u202f", MINUS = "\u2212";

export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  fill(node, attributes, children);
  return node;
}

export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  fill(node, attributes, children);
  return node;
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
}

// A mark tells its value on hover, focus and tap, as in the report, whose script stands before this one.
export const { fixed, tell, place: tellAt, hide: tellNothing } = window.confideValues;

export const $ = (id) => document.getElementById(id);
export const whole = (value) => Math.round(value).toLocaleString("en-US");
export const percent = (share, digits = 0) => `${fixed(100 * share, digits)}${THIN}%`;

export function number(value, digits = 3) {
  // As many digits as tell something, a true minus, no exponent for everyday sizes.
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  let text;
  if (size >= 100) text = Math.round(size).toLocaleString("en-US");
  else if (size === 0) text = "0";
  else if (size < 0.0005) text = size.toExponential(1);
  else text = String(Number(size.toPrecision(size < 1 ? digits - 1 : digits)));
  return (value < 0 && Number(text.replaceAll(",", "")) !== 0 ? MINUS : "") + text;
}

export function shown(key, value) {
  if (value === null || value === undefined) return "–";
  if (key === "confidence") return percent(value);
  if (key === "difficulty") return Math.abs(value) >= 10 ? number(Math.round(value)) : number(value, 2);
  if (key === "trust" || key === "loss") return value < 0 ? MINUS + Math.abs(value).toFixed(2) : value.toFixed(2);
  return number(value);
}

export function when(title) {
  return title === null ? "as trained" : `after ${title}`;
}

export function inside(column) {
  // A title within a sentence; a column of the user's own keeps its name.
  return column.key.startsWith("c.") ? column.title : column.title.toLowerCase();
}

const ruler = document.createElement("canvas").getContext("2d");
export function shorten(text, width, weight = 400) {
  // Text of a drawing that fits into so many of its pixels, by how wide its letters are.
  ruler.font = `${weight} 12px ${getComputedStyle(document.body).fontFamily}`;
  const letters = [...text];
  if (ruler.measureText(text).width <= width) return text;
  while (letters.length > 1 && ruler.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

export function empty(title, sentence, last) {
  return el("div", { class: "empty" }, el("h3", {}, title), el("p", {}, sentence, " ", last || ""));
}

export function missing(absent) {
  return empty(`No ${absent.what.toLowerCase()}`, absent.why, absent.command ? el("code", {}, absent.command) : "");
}

export function dataTable(caption, head, rows) {
  // Built when it is opened: a thousand rows nobody reads cost nothing.
  const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption });
  const details = el("details", { class: "data" }, el("summary", {}, "Numbers"), box);
  details.addEventListener("toggle", () => {
    if (box.firstChild) return;
    const body = rows().map((row) => el("tr", {}, row.map((cell) => el("td", {}, String(cell)))));
    box.append(el("table", {}, el("thead", {}, el("tr", {}, head.map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, body)));
  });
  return details;
}
