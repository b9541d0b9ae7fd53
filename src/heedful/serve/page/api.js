// Requests to the server: return one translation per text or file, or throw a RequestError.

const MAX_LINES = 32, MAX_CHARACTERS = 3000;  // per request: longer texts are sent in parts
class RequestError extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    Object.assign(this, { status, retryAfter });
  }
}

// Storage may be disabled in the browser; then nothing is stored.
const storage = (name) => ({
  get: (key) => { try { return window[name].getItem(key); } catch { return null; } },
  put: (key, value) => { try { if (value === null) window[name].removeItem(key); else window[name].setItem(key, value); } catch { /* not stored */ } },
});
const localStore = storage("localStorage"), sessionStore = storage("sessionStorage");

const canAlign = new Map();  // by direction; not set: unknown
async function send(path, body, headers, signal) {
  const key = sessionStore.get("heedful.key");
  let response, answer = {};
  try {
    response = await fetch(path, { method: "POST", headers: { ...headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) }, body, signal });
    answer = await response.json().catch(() => ({}));
  } catch (error) {
    throw signal.aborted ? error : new RequestError(0, "");
  }
  if (response.ok) return answer;
  throw new RequestError(response.status, String(answer.error ?? ""), Number(response.headers.get("Retry-After")) || null);
}
async function post(texts, direction, withAlignment, signal) {
  const request = { texts, ...direction, tokens: true, alternatives: 3, confidence: true, ...(withAlignment ? { alignment: "best" } : {}) };
  const { translations } = await send("v1/translate", JSON.stringify(request), { "Content-Type": "application/json" }, signal);
  if (translations?.length === texts.length) return translations.map(parseTranslation);
  throw new RequestError(200, "");
}
async function requestDescription(path, file, target, signal) {
  const query = new URLSearchParams({ target, tokens: true, alternatives: 3 });
  return parseTranslation({ source: "", ...await send(`${path}?${query}`, file, {}, signal) });
}

// Some models cannot align: if the first request is rejected, retry it without alignment. `direction` has the fields of
// the request that select it.
async function requestTranslations(texts, direction, signal) {
  const key = JSON.stringify(direction), isKnown = canAlign.has(key);
  try {
    const translations = await post(texts, direction, canAlign.get(key) ?? true, signal);
    if (!isKnown) canAlign.set(key, true);
    return translations;
  } catch (error) {
    if (error.status !== 422 || isKnown) throw error;
  }
  const translations = await post(texts, direction, false, signal);
  canAlign.set(key, false);
  return translations;
}

function firstPart(lines) {
  let count = 0, characters = 0;
  while (count < Math.min(lines.length, MAX_LINES) && (!count || characters + lines[count].length <= MAX_CHARACTERS)) characters += lines[count++].length;
  return lines.slice(0, count);
}
