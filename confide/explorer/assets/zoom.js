// A picture closely: as the model saw it, and whole where its file is known; both are enlarged and moved together.
import { $, el } from "./dom.js";

const MOST = 16;

export function show(sample, alt) {
  const dialog = $("dialog");
  let scale = 1, x = 0, y = 0, held = null;
  const figure = (words, source) => {
    const image = el("img", { src: source, alt: `${alt}, ${words}`, draggable: "false" }), caption = el("figcaption", {}, words);
    const box = el("figure", {}, el("div", { class: "pane" }, image), caption);
    image.addEventListener("error", () => box.replaceWith(el("div", { class: "empty" }, el("h3", {}, `Not here ${words}`), el("p", {}, "The dataset holds this picture only as the model saw it."))));
    return box;
  };
  const panes = el("div", { class: "panes" }, figure("as the model saw it", `/api/picture?row=${sample.row}`), figure("whole", `/api/picture?row=${sample.row}&whole=1`));
  const words = el("output", { "aria-live": "polite" });
  const draw = () => {
    x = Math.max(-0.5, Math.min(0.5, x)); y = Math.max(-0.5, Math.min(0.5, y));
    panes.querySelectorAll("img").forEach((image) => { image.style.transform = `scale(${scale}) translate(${100 * x}%, ${100 * y}%)`; image.classList.toggle("pixels", scale > 2); });
    words.textContent = `${Math.round(100 * scale)} %`;
  };
  const by = (factor) => { scale = Math.max(1, Math.min(MOST, scale * factor)); if (scale === 1) x = y = 0; draw(); };
  panes.addEventListener("wheel", (e) => { e.preventDefault(); by(e.deltaY < 0 ? 1.25 : 0.8); }, { passive: false });
  panes.addEventListener("pointerdown", (e) => { held = [e.clientX, e.clientY]; panes.setPointerCapture(e.pointerId); });
  panes.addEventListener("pointermove", (e) => {
    if (!held) return;
    const wide = panes.querySelector(".pane").clientWidth;
    x += (e.clientX - held[0]) / wide / scale; y += (e.clientY - held[1]) / wide / scale;
    held = [e.clientX, e.clientY];
    draw();
  });
  panes.addEventListener("pointerup", () => { held = null; });
  const keys = (e) => {
    const move = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[e.key];
    if (move) { e.preventDefault(); x += move[0] / scale; y += move[1] / scale; draw(); } else if (e.key === "+" || e.key === "=") by(1.25); else if (e.key === "-") by(0.8); else if (e.key === "0") by(0);
  };
  const button = (label, text, f) => el("button", { type: "button", class: "btn", "aria-label": label, onclick: f }, text);
  dialog.classList.add("wide");
  dialog.replaceChildren(el("header", {}, el("h2", { id: "dialog-title" }, sample.id), el("button", { type: "button", class: "x", "aria-label": "Close", onclick: () => dialog.close() }, "×")), panes,
    el("div", { class: "row zoom" }, button("Smaller", "−", () => by(0.8)), button("Larger", "+", () => by(1.25)), button("1:1, the whole picture", "1:1", () => by(0)), words));
  dialog.addEventListener("keydown", keys);
  dialog.addEventListener("close", () => { dialog.classList.remove("wide"); dialog.removeEventListener("keydown", keys); }, { once: true });
  draw();
  dialog.showModal();
}
