// Requests to the server of this page; when it is gone the page says so and comes back by itself.
const CARRIED = 60000; // bytes; what a browser still delivers when the page is left
let lost = false, waiting = null, savedAt = null;
const listeners = { lost: [], found: [] };
export const on = (name, f) => listeners[name].push(f);
export const lastSaved = () => savedAt;
export const isLost = () => lost;
export const isGone = (error) => error instanceof TypeError || error.name === "AbortError"; // no answer, as opposed to a refusal

export async function get(path, query = "", signal) {
  return answer(await reach(`/api/${path}${query ? "?" + query : ""}`, { signal }));
}

export async function put(path, body, query = "", method = "PUT") {
  const text = JSON.stringify(body);
  const found = await answer(await reach(`/api/${path}${query ? "?" + query : ""}`, {
    method, headers: { "Content-Type": "application/json", "X-Confide": "1" }, body: text,
    keepalive: new Blob([text]).size < CARRIED })); // arrives even if the page is left
  savedAt = new Date();
  return found;
}

export function back() {
  // Until the server answers again.
  return new Promise((done) => {
    const ask = () => reach("/api/alive", {}).then(done, () => setTimeout(ask, 1500));
    setTimeout(ask, 500);
  });
}

async function reach(url, options) {
  try {
    const response = await fetch(url, options);
    if (lost) { lost = false; clearTimeout(waiting); listeners.found.forEach((f) => f()); }
    return response;
  } catch (error) {
    if (error.name !== "AbortError" && !lost) { lost = true; listeners.lost.forEach((f) => f()); retry(); }
    throw error;
  }
}

function retry() {
  waiting = setTimeout(async () => {
    try { await reach("/api/alive", {}); } catch { if (lost) retry(); }
  }, 1500);
}

async function answer(response) {
  const type = response.headers.get("content-type") || "";
  const content = type.includes("json") ? await response.json() : { error: await response.text() };
  if (!response.ok) throw Object.assign(new Error(content.error || `The server answered ${response.status}.`), { state: content.state });
  return content;
}
