// Requests to the server of this page; when it is gone the page says so and comes back by itself.
let lost = false, waiting = null, savedAt = null;
const listeners = { lost: [], found: [] };
export const on = (name, f) => listeners[name].push(f);
export const lastSaved = () => savedAt;

export async function get(path, query = "", signal) {
  return answer(await reach(`/api/${path}${query ? "?" + query : ""}`, { signal }));
}

export async function put(path, body, query = "", method = "PUT") {
  const text = JSON.stringify(body);
  const found = await answer(await reach(`/api/${path}${query ? "?" + query : ""}`, {
    method, headers: { "Content-Type": "application/json", "X-Confide": "1" }, body: text,
    keepalive: text.length < 15000 })); // arrives even if the page is left; browsers take up to 64 KB so
  savedAt = new Date();
  return found;
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
  if (!response.ok) throw new Error(content.error || `The server answered ${response.status}.`);
  return content;
}
