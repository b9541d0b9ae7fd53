// Asking the server: some lines in, one answer for each out, or a Refusal that says what is wrong.

const LINES = 32, LETTERS = 3000;  // of one request: long texts arrive part by part
class Refusal extends Error {
  constructor(status, why, after) {
    super(why);
    Object.assign(this, { status, why, after });
  }
}

// Browsers may forbid storage; then nothing is remembered.
const drawer = (name) => ({
  get: (key) => { try { return window[name].getItem(key); } catch { return null; } },
  put: (key, value) => { try { if (value === null) window[name].removeItem(key); else window[name].setItem(key, value); } catch { /* forgotten */ } },
});
const kept = drawer("localStorage"), passing = drawer("sessionStorage");

let links = true, linked = false;  // whether alignments are asked for, and whether one was ever given
async function post(texts, signal) {
  const headers = { "Content-Type": "application/json" }, key = passing.get("heedful.key");
  if (key) headers.Authorization = `Bearer ${key}`;
  const asked = { texts, tokens: true, alternatives: 3, ...(links ? { alignment: "best" } : {}) };
  let answer, said = {};
  try {
    answer = await fetch("v1/translate", { method: "POST", headers, body: JSON.stringify(asked), signal });
    said = await answer.json().catch(() => ({}));
  } catch (error) {
    throw signal.aborted ? error : new Refusal(0, "");
  }
  if (answer.ok && said.translations?.length === texts.length) {
    linked ||= links;
    return said.translations.map(read);
  }
  throw new Refusal(answer.status, String(said.error ?? ""), Number(answer.headers.get("Retry-After")) || null);
}

// Not every model can align: one that refuses, and has never aligned before, is asked again without.
async function ask(texts, signal) {
  try {
    return await post(texts, signal);
  } catch (error) {
    if (error.status !== 422 || !links || linked) throw error;
  }
  links = false;
  try {
    return await post(texts, signal);
  } catch (error) {
    links = true;
    throw error;
  }
}

function some(lines) {
  let count = 0, letters = 0;
  while (count < Math.min(lines.length, LINES) && (!count || letters + lines[count].length <= LETTERS)) letters += lines[count++].length;
  return lines.slice(0, count);
}
