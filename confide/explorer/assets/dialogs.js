// Save a view, export samples.
import { $, el, whole } from "./dom.js";
import { get, put } from "./net.js";
import * as state from "./state.js";

function open(title, ...content) {
  const dialog = $("dialog");
  dialog.replaceChildren(el("header", {}, el("h2", { id: "dialog-title" }, title), el("button", { type: "button", class: "x", "aria-label": "Close", onclick: () => dialog.close() }, "×")), ...content);
  if (!dialog.open) dialog.showModal();
  return dialog;
}

export async function save() {
  const name = el("input", { type: "text", maxlength: 200, "aria-label": "Name of this view", placeholder: "Name" });
  const list = el("ul", { class: "views" }), line = el("p", { class: "sub", role: "status" });
  const draw = (views) => list.replaceChildren(...views.map(([title, query]) => el("li", {}, el("a", { href: `/?${query}`, onclick: (e) => { e.preventDefault(); $("dialog").close(); state.open(query); } }, title), el("button", { type: "button", class: "lnk", "aria-label": `Remove ${title}`, onclick: async () => draw((await put("view", { name: title, query: "" })).views) }, "remove"))));
  const keep = async () => { try { draw((await put("view", { name: name.value, query: state.query(["sample"]) })).views); line.textContent = `Saved as ${name.value}.`; name.value = ""; } catch (error) { line.textContent = `Not saved. ${error.message}`; } };
  const form = el("form", { method: "dialog", onsubmit: (e) => { e.preventDefault(); keep(); } }, name, el("button", { type: "submit", class: "btn pri" }, "Save"));
  const copy = el("button", { type: "button", class: "btn", onclick: async () => { try { await navigator.clipboard.writeText(location.href); line.textContent = "Copied."; } catch { line.textContent = "Copy the address from the address bar."; } } }, "Copy the link");
  open("Save this view", el("p", { class: "sub" }, "Filters, sorting, models and the open sample stand in the address: a link or a bookmark is a saved view. Named views are kept with the run."), form, copy, line, list);
  name.focus();
  draw((await get("views")).views);
}

export function exported(about, count, tagged) {
  const what = (value, title, many) => el("label", {}, el("input", { type: "radio", name: "what", value, checked: value === "selection" }), title, el("em", {}, whole(many)));
  const line = el("p", { class: "sub", role: "status" });
  const chosen = () => document.querySelector("input[name=what]:checked").value;
  const download = (format) => { const link = el("a", { href: `/api/export?${state.query(["view", "sample"], [["what", chosen()], ["format", format]])}`, download: "" }); document.body.append(link); link.click(); link.remove(); line.textContent = `The ${format} file is being made.`; };
  const fiftyone = async () => { line.textContent = "Handing over to FiftyOne."; try { const made = await put("fiftyone", {}, state.query(["view", "sample"], [["what", chosen()]]), "POST"); line.textContent = `FiftyOne has ${whole(made.samples)} samples as ${made.name}.`; } catch (error) { line.textContent = error.message; } };
  const buttons = el("div", { class: "row" }, el("button", { type: "button", class: "btn pri", onclick: () => download("csv") }, "CSV"), el("button", { type: "button", class: "btn", onclick: () => download("parquet") }, "Parquet"));
  if (about.fiftyone) buttons.append(el("button", { type: "button", class: "btn", onclick: fiftyone }, "FiftyOne"));
  open("Export", el("fieldset", { class: "what" }, el("legend", { class: "sr" }, "Which samples"), what("selection", "The samples that fit the filters", count), what("tags", "All tagged samples", tagged)),
    el("p", { class: "sub" }, "Every column, what the model says at this stage, and the tags, in the order shown."), buttons, line, about.fiftyone ? "" : el("p", { class: "sub" }, "For FiftyOne: ", el("code", {}, "pip install 'confide[fiftyone]'")));
}
