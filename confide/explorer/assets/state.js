// The view: everything that decides what is shown, kept in the address so that a link is a saved view.
const PLAIN = ["model", "stage", "sort", "with", "view", "sample", "panel", "colour"];
const QUICK = 1000; // ms; changes of the same thing that follow each other so quickly are one step back
let words = new Map();
const listeners = [];

function read(text) {
  words = new Map();
  for (const [key, value] of new URLSearchParams(text)) words.set(key, [...(words.get(key) || []), value]);
}

export function load(defaults) {
  read(location.search);
  if (!words.size) for (const [key, value] of defaults) words.set(key, [value]);
  store([]);
  addEventListener("popstate", () => {
    const old = words;
    read(location.search);
    const changed = [...new Set([...old.keys(), ...words.keys()])].filter((key) => String(old.get(key)) !== String(words.get(key)));
    clearTimeout(later);
    last = "";
    if (changed.length) listeners.forEach((f) => f(changed, true));
  });
}

export const values = (key) => words.get(key) || [];
export const one = (key) => values(key)[0];
export const filters = () => [...words].filter(([key]) => !PLAIN.includes(key));
export const watch = (f) => listeners.push(f);

export const ASIDE = ["view", "sample", "panel", "colour"]; // what says how things are shown, not which

export function query(without = ASIDE, more = []) {
  const pairs = new URLSearchParams();
  for (const [key, list] of words) if (!without.includes(key)) list.forEach((value) => pairs.append(key, value));
  more.forEach(([key, value]) => pairs.append(key, value));
  return pairs.toString();
}

export function set(changes) {
  const changed = [];
  for (const [key, value] of Object.entries(changes)) {
    const list = value === null || value === undefined ? [] : Array.isArray(value) ? value : [value];
    if (String(list) === String(values(key)) && list.length === values(key).length) continue;
    changed.push(key);
    if (list.length) words.set(key, list.map(String)); else words.delete(key);
  }
  if (!changed.length) return;
  store(changed);
  listeners.forEach((f) => f(changed));
}

export function toggle(key, value) {
  const list = values(key);
  set({ [key]: list.includes(value) ? list.filter((v) => v !== value) : [...list, value] });
}

export function open(text) {
  // Another view whole, from the list of saved ones.
  const old = new Set(words.keys());
  read(text);
  store(["view"]);
  listeners.forEach((f) => f([...new Set([...old, ...words.keys()])]));
}

export function keep(text) {
  // The part of the address that means something; the rest is no step to go back to.
  const shown = [...words].filter(([key]) => ASIDE.includes(key));
  read(text);
  for (const [key, list] of shown) words.set(key, list);
  store([]);
}

export const clear = () => set(Object.fromEntries(filters().map(([key]) => [key, null])));

let stored = [], later = 0, last = "", lastAt = 0;
function store(changed) {
  // Every change is a step to go back to, but quick ones through samples, a range or a typed word are one together.
  // Browsers refuse more than some hundred addresses in half a minute; the last one follows when they take it again.
  clearTimeout(later);
  const now = Date.now(), gliding = changed.length === 1 && (["sample", "search"].includes(changed[0]) || (one(changed[0]) || "").includes(".."));
  const same = gliding && changed[0] === last && now - lastAt < QUICK;
  stored = stored.filter((at) => now - at < 30000);
  if (stored.length >= 80) { later = setTimeout(() => store([]), 500); return; }
  stored.push(now);
  if (changed.length) { last = changed.join(); lastAt = now; }
  // An explicit mark keeps a view without filters apart from a first visit.
  history[changed.length && !same ? "pushState" : "replaceState"](null, "", `${location.pathname}?${query([]) || "view="}`);
}
