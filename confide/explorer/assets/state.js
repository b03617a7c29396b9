// The view: everything that decides what is shown, kept in the address so that a link is a saved view.
const PLAIN = ["model", "stage", "sort", "with", "view", "sample"];
let words = new Map();
const listeners = [];

export function load(defaults) {
  words = new Map();
  for (const [key, value] of new URLSearchParams(location.search)) words.set(key, [...(words.get(key) || []), value]);
  if (!words.size) for (const [key, value] of defaults) words.set(key, [value]);
  store();
}

export const values = (key) => words.get(key) || [];
export const one = (key) => values(key)[0];
export const filters = () => [...words].filter(([key]) => !PLAIN.includes(key));
export const watch = (f) => listeners.push(f);

export function query(without = ["view", "sample"], more = []) {
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
  store();
  listeners.forEach((f) => f(changed));
}

export function toggle(key, value) {
  const list = values(key);
  set({ [key]: list.includes(value) ? list.filter((v) => v !== value) : [...list, value] });
}

export function open(text) {
  // Another view whole, from the list of saved ones.
  const old = new Set(words.keys());
  words = new Map();
  for (const [key, value] of new URLSearchParams(text)) words.set(key, [...(words.get(key) || []), value]);
  store();
  listeners.forEach((f) => f([...new Set([...old, ...words.keys()])]));
}

export const clear = () => set(Object.fromEntries(filters().map(([key]) => [key, null])));

let stored = [], later = 0;
function store() {
  // Browsers refuse more than some hundred addresses in half a minute; the last one follows when they take it again.
  clearTimeout(later);
  stored = stored.filter((at) => Date.now() - at < 30000);
  if (stored.length >= 80) { later = setTimeout(store, 500); return; }
  stored.push(Date.now());
  // An explicit mark keeps a view without filters apart from a first visit.
  history.replaceState(null, "", `${location.pathname}?${query([]) || "view="}`);
}
