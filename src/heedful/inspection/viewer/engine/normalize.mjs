// Normalization of text, the same before training and before translation:
//
//     text = NFC(text), then every change of the list, until nothing changes
//
// The list is that of heedful/text/normalize.py: pairs of a pattern and its replacement.

const JOINING = "\u0600-\u08ff\u0900-\u0dff\u0e00-\u0fff\u1000-\u109f\u1780-\u18af\ufb50-\ufdff\ufe0f\ufe70-\ufefc\u2600-\u27bf\u2190-\u21ff\u2b00-\u2bff\u{1f000}-\u{1faff}";
const CHANGES = [
  [/[\ud800-\udfff]/gu, "\ufffd"],  // half a character
  [/[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]/gu, " "],  // line ends
  [/[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]/gu, ""],  // control characters
  [/[\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\u061c\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu, ""],  // invisible
  [new RegExp(`(?<![${JOINING}])[\\u200c\\u200d]+|(?<=[\\u200c\\u200d])[\\u200c\\u200d]+`, "gu"), ""],  // joiners between letters that do not join
  [/\u2581/gu, "_"],  // SentencePiece uses it for spaces
  [/[\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]/gu, " "],
  [/ {2,}/gu, " "],
];

export function normalizeText(text) {
  for (let before = null; text !== before;) {
    before = text;
    text = text.normalize("NFC");
    for (const [pattern, replacement] of CHANGES) text = text.replace(pattern, replacement);
    text = text.replace(/^ +| +$/g, "");
  }
  return text;
}
