// Save a view, export samples.
import { $, el, whole } from "./dom.js";
import { get, put } from "./net.js";
import * as outbox from "./outbox.js";
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
  const remove = (title) => el("button", { type: "button", class: "lnk", "aria-label": `Remove ${title}`, onclick: () => ask(() => put("view", { name: title, query: "" }), "Removed.", "Not removed.") }, "remove");
  const link = (title, query) => el("a", { href: `/?${query}`, onclick: (e) => { e.preventDefault(); $("dialog").close(); state.open(query); } }, title);
  const draw = (views) => {
    const used = list.contains(document.activeElement);
    list.replaceChildren(...views.map(([title, query]) => el("li", {}, link(title, query), remove(title))));
    if (used) name.focus();
  };
  let asked = 0;
  const ask = async (send, done, failed) => {
    const mine = ++asked;
    try {
      const { views } = await send();
      if (mine === asked) { draw(views); line.textContent = done; } // an older list, come late, does not replace a newer one
      return true;
    } catch (error) { line.textContent = `${failed} ${error.message}`; return false; }
  };
  const keep = async () => {
    const title = name.value;
    line.textContent = "Saving …";
    if ((await ask(() => put("view", { name: title, query: state.query(["sample"]) }), `Saved as ${title}.`, "Not saved.")) && name.value === title) name.value = "";
  };
  const form = el("form", { method: "dialog", onsubmit: (e) => { e.preventDefault(); keep(); } }, name, el("button", { type: "submit", class: "btn pri" }, "Save"));
  const copy = el("button", { type: "button", class: "btn", onclick: async () => { try { await navigator.clipboard.writeText(location.href); line.textContent = "Copied."; } catch { line.textContent = "Copy the address from the address bar."; } } }, "Copy the link");
  open("Save this view", el("p", { class: "sub" }, "Filters, sorting, models and the open sample stand in the address: a link or a bookmark is a saved view. Named views are kept with the run."), form, copy, line, list);
  name.focus();
  await ask(() => get("views"), "", "The saved views did not come.");
}

export function exported(about, count, tagged) {
  const what = (value, title, many) => el("label", {}, el("input", { type: "radio", name: "what", value, checked: value === "selection" }), title, el("em", {}, whole(many)));
  const line = el("p", { class: "sub", role: "status" });
  const chosen = () => document.querySelector("input[name=what]:checked").value;
  const download = async (format) => { line.textContent = "Tags are being saved."; const open = await outbox.all(); const link = el("a", { href: `/api/export?${state.query(state.ASIDE, [["what", chosen()], ["format", format]])}`, download: "" }); document.body.append(link); link.click(); link.remove(); line.textContent = `The ${format} file is being made.${open ? ` ${whole(open)} changes are not saved yet and not in it.` : ""}`; };
  const fiftyone = async () => { line.textContent = "Handing over to FiftyOne."; await outbox.all(); try { const made = await put("fiftyone", {}, state.query(state.ASIDE, [["what", chosen()]]), "POST"); line.textContent = `FiftyOne has ${whole(made.samples)} samples as ${made.name}.`; } catch (error) { line.textContent = error.message; } };
  const buttons = el("div", { class: "row" }, el("button", { type: "button", class: "btn pri", onclick: () => download("csv") }, "CSV"), el("button", { type: "button", class: "btn", onclick: () => download("parquet") }, "Parquet"), el("button", { type: "button", class: "btn", onclick: () => download("labelstudio") }, "Label Studio"), el("button", { type: "button", class: "btn", onclick: () => download("fiftyone") }, "FiftyOne files"));
  if (about.fiftyone) buttons.append(el("button", { type: "button", class: "btn", onclick: fiftyone }, "Into FiftyOne"));
  open("Export", el("fieldset", { class: "what" }, el("legend", { class: "sr" }, "Which samples"), what("selection", "The samples that fit the filters", count), what("tags", "All tagged samples", tagged)),
    el("p", { class: "sub" }, "Every column, what the model says at this stage, and the tags, in the order shown. Label Studio and FiftyOne get a zip file with the pictures (5,000 samples at most)."), buttons, line, about.fiftyone ? "" : el("p", { class: "sub" }, "Straight into FiftyOne: ", el("code", {}, "pip install 'confide[fiftyone]'")));
}
