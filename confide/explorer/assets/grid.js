// The grid: a million cells, of which only those in sight exist.
import { $, el, shown } from "./dom.js";
import { get } from "./net.js";
import * as state from "./state.js";

const BLOCK = 240, KEPT_BLOCKS = 40, GAP_X = 10, GAP_Y = 14;
const TALLEST = 8e6; // px; browsers lose count beyond some ten million, so taller grids are scrolled by pages
const FAST = 1.5; // px per ms; faster than this nothing can be read, so only places are shown
const CALM = 140; // ms without such speed before anything is fetched: a slow frame is not a slow reader
const SHAPES = {
  image: { least: 78, height: (w) => w + 4 + 33 },
  text: { least: 208, height: () => 120 },
  none: { least: 148, height: () => 58 },
};

export class Grid {
  constructor(open) {
    this.open = open;
    this.box = $("grid");
    this.list = $("cells");
    this.count = 0;
    this.kind = "image";
    this.cells = new Map(); // index -> element in use
    this.spare = [];
    this.blocks = new Map(); // block -> array of cells
    this.asking = new Map(); // block -> until it is answered
    this.tagged = []; // [row, tag] of every change, for answers that left the server before it
    this.generation = 0; // of the order: places of one mean nothing in another
    this.top = 0; this.lastTop = 0; this.lastTime = 0; this.fastUntil = 0;
    this.current = -1; this.focused = -1;
    this.chosen = new Map(); // row -> place, of the samples to tag together
    this.box.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.resize()).observe(this.box);
    this.list.addEventListener("click", (e) => { const c = e.target.closest("button"); if (!c || !c.dataset.at) return; if ((e.ctrlKey || e.metaKey || e.shiftKey) && c.dataset.row) this.choose(+c.dataset.at, e.shiftKey); else this.open(+c.dataset.at, c.dataset.row); });
    this.box.addEventListener("keydown", (e) => this.key(e));
    this.list.addEventListener("focusin", (e) => { const c = e.target.closest("button"); if (c && c.dataset.at) this.focused = +c.dataset.at; });
    this.list.addEventListener("error", (e) => { if (e.target.tagName === "IMG") this.noPicture(e.target); }, true);
  }

  show(count, keepPlace) {
    this.asked && this.asked.abort();
    this.asked = new AbortController();
    this.blocks.clear();
    this.asking.clear();
    this.generation++;
    this.count = count;
    this.query = state.query();
    if (!keepPlace) { this.top = 0; this.box.scrollTop = 0; this.lastTop = 0; this.focused = -1; }
    this.focused = Math.min(this.focused, count - 1);
    this.old = true;
    this.resize();
  }

  again() { this.old = true; this.resize(); } // pictures that failed are asked for anew

  resize() {
    const width = this.box.clientWidth - 6, height = this.box.clientHeight;
    if (!width || !height) return;
    const shape = SHAPES[this.kind] || SHAPES.none;
    const columns = Math.max(this.kind === "text" ? 1 : this.kind === "image" ? 3 : 2, Math.floor((width + GAP_X) / (shape.least + GAP_X)));
    const first = this.columns ? Math.floor(this.top / this.rowHeight) * this.columns : 0;
    const cell = (width - (columns - 1) * GAP_X) / columns;
    const changed = columns !== this.columns || cell !== this.cellWidth || height !== this.height;
    if (!changed && !this.old) return;
    this.old = false;
    this.columns = columns; this.cellWidth = cell; this.height = height;
    this.rowHeight = Math.round(shape.height(cell)) + GAP_Y;
    this.total = Math.ceil(this.count / columns) * this.rowHeight + 8;
    this.physical = Math.min(this.total, TALLEST);
    this.list.style.height = `${this.physical}px`;
    this.list.style.setProperty("--cell", `${cell}px`);
    this.list.className = `grid ${this.kind}`;
    for (const [index, cellNode] of this.cells) this.drop(index, cellNode);
    this.first = -1;
    this.top = Math.min(Math.floor(first / columns) * this.rowHeight, Math.max(0, this.total - height));
    this.place();
    this.render();
  }

  place() {
    // Put the scroll bar where the place in the whole belongs.
    const at = this.total <= this.physical ? this.top : this.top / Math.max(1, this.total - this.height) * (this.physical - this.height);
    this.box.scrollTop = at;
    this.lastTop = this.box.scrollTop;
    this.shift = this.lastTop - this.top;
    for (const [index, node] of this.cells) this.put(index, node);
  }

  scrolled() {
    const now = performance.now(), at = this.box.scrollTop, step = at - this.lastTop, before = this.top;
    if (!step) return;
    if (this.total <= this.physical) this.top = at;
    else if (Math.abs(step) < 3 * this.height) this.top += step; // by wheel or key: as far as it looks
    else this.top = at / (this.physical - this.height) * (this.total - this.height); // by the bar: to that share
    this.top = Math.max(0, Math.min(this.top, this.total - this.height));
    const shift = at - this.top;
    if (shift !== this.shift) { this.shift = shift; for (const [index, node] of this.cells) this.put(index, node); }
    if (Math.abs(this.top - before) / Math.max(1, now - this.lastTime) > FAST) this.fastUntil = now + CALM;
    this.lastTop = at; this.lastTime = now;
    clearTimeout(this.settle);
    this.settle = setTimeout(() => { this.fastUntil = 0; if (this.total > this.physical) this.place(); this.render(); }, 90);
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.render(); });
  }

  render() {
    if (!this.columns) return;
    const first = Math.max(0, Math.floor(this.top / this.rowHeight) - 1) * this.columns;
    const rows = Math.ceil(this.height / this.rowHeight) + 3;
    const last = Math.min(this.count, first + rows * this.columns);
    for (const [index, node] of this.cells) if (index < first || index >= last) this.drop(index, node);
    if (this.away && this.focused < 0) this.focused = 0; // another order: its first
    const calm = performance.now() > this.fastUntil;
    // Within a row of pixels nothing changes but the scroll itself.
    if (first === this.first && last === this.last && !this.unfilled) return;
    this.first = first; this.last = last; this.unfilled = 0;
    for (let index = first; index < last; index++) {
      let node = this.cells.get(index);
      if (!node) {
        node = this.spare.pop() || this.fresh();
        this.cells.set(index, node);
        node.hidden = false;
        node.button.dataset.at = index;
        node.setAttribute("aria-posinset", index + 1);
        node.setAttribute("aria-setsize", this.count);
        this.put(index, node);
        node.filled = false;
      }
      if (!node.filled) this.fillCell(index, node, calm);
      if (!node.filled) this.unfilled++;
    }
    if (calm) this.inOrder();
    if (calm) for (let b = Math.floor(first / BLOCK); b * BLOCK < last; b++) this.ask(b)?.catch(() => {});
    this.tabStop(first, last);
    this.comeBack();
    const footRow = Math.floor(this.top / this.rowHeight) + 1;
    this.onRows && this.onRows(footRow, Math.min(footRow + Math.floor(this.height / this.rowHeight) - 1, Math.ceil(this.count / this.columns)), Math.ceil(this.count / this.columns));
  }

  inOrder() {
    // Cells are used again wherever they are needed: for who reads the page by ear they stand in their order.
    const nodes = [...this.cells].sort((a, b) => a[0] - b[0]).map(([, node]) => node), held = nodes.findIndex((node) => node.button === document.activeElement);
    if (held >= 0) { nodes[held].before(...nodes.slice(0, held)); nodes[held].after(...nodes.slice(held + 1)); return; } // moved itself it would lose the keyboard
    if (nodes.some((node, k) => k && !(nodes[k - 1].compareDocumentPosition(node) & 4))) this.list.append(...nodes);
  }

  comeBack() {
    // The keyboard stays where it was, on a cell drawn anew or scrolled back into sight.
    if (!this.away) return;
    if (document.activeElement !== this.box) { this.away = false; return; }
    const node = this.cells.get(this.focused);
    if (node) { this.away = false; node.button.focus({ preventScroll: true }); }
  }

  focusHere(node = this.cells.get(this.focused) || this.stop) {
    (node ? node.button : this.box).focus({ preventScroll: true }); // where the keyboard was, or the first in sight
  }

  follow(index) {
    this.focused = index;
    if (!this.box.contains(document.activeElement)) return;
    this.reveal(index);
    this.tabStop(this.first, this.last);
    this.focusHere();
  }

  tabStop(first, last) {
    const wanted = this.focused >= first && this.focused < last ? this.focused : first;
    if (this.stop !== this.cells.get(wanted)) {
      if (this.stop) this.stop.button.tabIndex = -1;
      this.stop = this.cells.get(wanted);
      if (this.stop) this.stop.button.tabIndex = 0;
    }
  }

  fresh() {
    const node = el("li", {});
    node.image = el("img", { alt: "", decoding: "async" });
    node.words = el("p", { class: "words" });
    node.label = el("span", {}); node.said = el("span", { class: "pr" }); node.figure = el("i", {}); node.tag = el("u", {});
    node.button = el("button", { type: "button", tabindex: -1 }, node.image, node.words, " ", node.label, " ", node.figure, " ", node.said, " ", node.tag);
    node.append(node.button);
    this.list.append(node);
    return node;
  }

  put(index, node) {
    const x = (index % this.columns) * (this.cellWidth + GAP_X);
    const y = Math.floor(index / this.columns) * this.rowHeight + this.shift;
    node.style.transform = `translate(${x}px, ${y}px)`;
  }

  drop(index, node) {
    if (node.button === document.activeElement) { this.away = true; this.box.focus({ preventScroll: true }); } // not to the page's top
    this.cells.delete(index);
    node.hidden = true;
    node.image.removeAttribute("src");
    node.filled = false;
    node.blank = false;
    delete node.button.dataset.at;
    delete node.button.dataset.row;
    this.spare.push(node);
  }

  fillCell(index, node, calm) {
    const block = this.blocks.get(Math.floor(index / BLOCK)), cell = block && block[index % BLOCK];
    if (!cell) {
      if (!node.blank) { node.className = "sk"; node.blank = true; node.image.removeAttribute("src"); for (const t of [node.label, node.said, node.figure, node.tag, node.words]) t.textContent = ""; node.button.removeAttribute("data-row"); node.button.setAttribute("aria-label", "Loading"); }
      return;
    }
    node.blank = false;
    node.className = cell.right === false ? "bad" : "";
    node.button.dataset.row = cell.row;
    node.label.textContent = named(cell);
    node.said.textContent = answer(cell);
    node.figure.textContent = cell.value === null ? "" : shown(this.sort, cell.value);
    node.tag.textContent = cell.tag || "";
    node.words.textContent = this.kind === "text" ? cell.text || "" : this.kind === "image" ? "" : cell.id;
    node.button.setAttribute("aria-label", describe(cell, this.sort));
    this.showChosen(node);
    if (index === this.current) node.button.setAttribute("aria-current", "true"); else node.button.removeAttribute("aria-current");
    if (this.kind !== "image") { node.filled = true; return; }
    if (calm && !this.loading) {
      node.classList.remove("nopic");
      node.image.src = `/api/picture?row=${cell.row}&small=1`;
      node.filled = true;
    }
  }

  noPicture(image, node = image.closest("li")) {
    if (image.hasAttribute("src")) { node.classList.add("nopic"); node.words.textContent = "no picture"; image.removeAttribute("src"); }
  }

  ask(number) {
    if (this.blocks.has(number) || number * BLOCK >= this.count) return null;
    if (!this.asking.has(number)) this.asking.set(number, this.fetch(number));
    return this.asking.get(number);
  }

  async fetch(number) {
    const asked = this.asked, since = this.tagged.length;
    try {
      const found = await get("rows", `${this.query}${this.query ? "&" : ""}from=${number * BLOCK}&count=${BLOCK}`, asked.signal);
      if (asked !== this.asked) return;
      this.asking.delete(number);
      if (found.total !== this.count) { this.onStale && this.onStale(); return; } // tags have changed what fits
      const later = new Map(this.tagged.slice(since));
      for (const cell of found.cells) if (later.has(cell.row)) cell.tag = later.get(cell.row);
      this.blocks.set(number, found.cells);
      for (const key of [...this.blocks.keys()].slice(0, Math.max(0, this.blocks.size - KEPT_BLOCKS))) this.blocks.delete(key);
      this.render();
    } catch (error) {
      if (asked !== this.asked) return;
      this.asking.delete(number);
      if (error.name !== "AbortError" && this.onError) this.onError(error);
      throw error;
    }
  }

  async cellAt(index) {
    // What stands at a place; nothing if the order changes meanwhile.
    const number = Math.floor(index / BLOCK), { generation } = this;
    await this.ask(number);
    return (generation === this.generation && this.blocks.get(number)?.[index % BLOCK]) || null;
  }

  choose(index, upTo = false) {
    // One more or one less; up to it, all that are loaded between the last chosen and it.
    if (index === null) this.chosen.clear();
    else {
      const from = upTo && this.lastChosen !== undefined ? this.lastChosen : index, cells = [];
      for (let at = Math.min(from, index); at <= Math.max(from, index); at++) { const cell = this.known(at); if (cell) cells.push([cell.row, at]); }
      if (!upTo && cells.length && this.chosen.has(cells[0][0])) this.chosen.delete(cells[0][0]); else cells.forEach(([row, at]) => this.chosen.set(row, at));
      this.lastChosen = index;
    }
    for (const node of this.cells.values()) this.showChosen(node);
    this.onChosen && this.onChosen();
  }

  showChosen(node) {
    const on = this.chosen.has(+node.button.dataset.row) && node.button.dataset.row !== undefined;
    node.classList.toggle("chosen", on);
    if (on) node.button.setAttribute("aria-pressed", "true"); else node.button.removeAttribute("aria-pressed");
  }

  known(index) { return this.blocks.get(Math.floor(index / BLOCK))?.[index % BLOCK] || null; } // without asking

  indexOf(row) {
    for (const [number, block] of this.blocks) { const at = block.findIndex((cell) => cell.row === row); if (at >= 0) return number * BLOCK + at; }
    return -1;
  }

  retag(row, kind) {
    this.tagged.push([row, kind]);
    for (const block of this.blocks.values()) for (const cell of block) if (cell.row === row) { cell.tag = kind; this.rename(cell); }
  }

  rename(cell) {
    for (const node of this.cells.values()) if (node.button.dataset.row === String(cell.row)) { node.tag.textContent = cell.tag || ""; node.button.setAttribute("aria-label", describe(cell, this.sort)); }
  }

  select(index, reveal = true) {
    this.current = index;
    for (const [at, node] of this.cells) if (at === index) node.button.setAttribute("aria-current", "true"); else node.button.removeAttribute("aria-current");
    if (index >= 0 && reveal) this.reveal(index);
  }

  reveal(index) {
    const y = Math.floor(index / this.columns) * this.rowHeight;
    if (y < this.top) this.top = y; else if (y + this.rowHeight > this.top + this.height) this.top = y + this.rowHeight - this.height;
    else return;
    this.place();
    this.render();
  }

  key(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -Infinity, End: Infinity };
    if (event.key.toLowerCase() === "x" && this.focused >= 0 && !event.ctrlKey && !event.metaKey) { event.preventDefault(); event.stopPropagation(); this.choose(this.focused, event.shiftKey); return; }
    if (!(event.key in moves)) return;
    event.preventDefault();
    if (this.walk(moves[event.key])) return; // with a sample open, walking shows the next one
    const next = Math.max(0, Math.min(this.count - 1, this.focused + moves[event.key]));
    this.focused = next;
    this.reveal(next);
    this.tabStop(this.first, this.last);
    const node = this.cells.get(next);
    if (node) node.button.focus({ preventScroll: true });
  }
}

// A file of confidence and correctness has neither labels nor predictions: right or wrong is all there is to say.
const named = (cell) => cell.label ?? (cell.prediction !== null ? "no label" : cell.right === true ? "right" : cell.right === false ? "" : cell.id);
const answer = (cell) => (cell.right === false || cell.label === null ? cell.prediction ?? (cell.right === false ? "wrong" : "") : "");

function describe(cell, sort) {
  // What is seen in the cell, in its order, and what it means.
  const value = cell.value === null ? "" : shown(sort, cell.value);
  const seen = [named(cell), value, answer(cell), cell.tag].filter(Boolean).join(" ");
  const means = [value && `${sort.replace(/^c\./, "")} ${value}`, cell.prediction === null ? "" : cell.right ? "predicted so" : `predicted ${cell.prediction}`, cell.tag && `tagged ${cell.tag}`].filter(Boolean).join(", ");
  return `${cell.id}: ${seen}${means ? `; ${means}` : ""}`;
}
