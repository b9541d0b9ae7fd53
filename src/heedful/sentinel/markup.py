"""Placeholders and markup: parts of a text that a translation must keep as they are."""

import re
from collections import Counter
from collections.abc import Callable

PLACEHOLDER = re.compile(
    r"\{\{[^{}\n]{1,60}\}\}"  # {{name}}
    r"|\{[\w.-]{0,60}(?:\[\w{1,60}\])?(?:![rsa])?(?::[^{}\s]{0,20})?\}"  # {}, {0}, {name}, {row[key]!r:>8}
    r"|\{\w{1,60}, ?(?:plural|select|selectordinal|number|date|time)\b"  # {count, plural, ...
    r"|(?<![\w$])\$(?:\{[^{}\n]{1,60}\}|[A-Za-z_]\w{0,60})"  # $name, ${name}
    # %s, %(name)d, %1$s, %-5.2f. Not 50 %d'alcool: no number before it; not 100 % sicher: no space inside.
    r"|(?<![\d%])(?<!\d )(?<!\d\u00a0)%(?:\(\w{1,60}\)|\d{1,2}\$)?[-+#0]{0,3}\d{0,3}(?:\.\d{1,2})?(?:hh?|ll?|[zjtL])?"
    r"[sdifuxXoeEgGcr](?:(?![^\W_])|(?=s\b))"
)
TAG = re.compile(  # an opening tag may have attributes with values; <info@example.org> and a <b and c> d are no tags
    r"<(?P<close>/?)(?P<name>[A-Za-z][\w:.-]{0,40})"
    r"(?P<attributes>(?:\s{1,9}[\w:.-]{1,40}\s?=\s?(?:\"[^\"<>]*\"|'[^'<>]*'|[^\s\"'<>]+)){0,20})\s{0,9}(?P<empty>/?)>"
)
ENTITY = re.compile(r"&(?:[A-Za-z]\w{1,30}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
LINK = re.compile(r"!?\[[^\[\]\n]{0,300}\](\([^()\s]{1,2000}(?:\s\"[^\"\n]{0,300}\")?\))")
# <file> in a manual is a word to translate; these names, tags with attributes and tags with an end are markup.
TAG_NAMES = re.compile(
    "a|abbr|b|bd[io]|blockquote|br|code|del|dfn|div|em|h[1-6r]|i|img|ins|kbd|li|mark|ol|p|pre|q|s|samp|small|span"
    "|strong|su[bp]|table|t[dhrt]|tbody|thead|ul?|var|wbr",
    re.IGNORECASE,
)


def find_placeholders(text: str) -> list[str]:
    if "{" not in text and "%" not in text and "$" not in text:
        return []
    return PLACEHOLDER.findall(text)


def find_markup(text: str) -> list[str]:
    """Tags, character entities, and the addresses of Markdown links."""
    parts = []
    if "<" in text and ">" in text:
        tags = list(TAG.finditer(text))
        closed = {tag["name"] for tag in tags if tag["close"]}
        parts += [
            re.sub(r"\s+", " ", tag[0])
            for tag in tags
            if tag["close"] or tag["empty"] or tag["attributes"] or tag["name"] in closed
            or TAG_NAMES.fullmatch(tag["name"])
        ]  # fmt: skip
    if "&" in text:
        parts += ENTITY.findall(text)
    if "](" in text:
        parts += [f"[…]{address}" for address in LINK.findall(text)]
    return parts


def differences(find: Callable[[str], list[str]], source: str, output: str) -> tuple[list[str], list[str]]:
    """What only the source has, and what only the output has; repeated parts count as often as they occur."""
    in_source, in_output = find(source), find(output)
    if in_source == in_output:  # mostly because both are empty
        return [], []
    lost, added = Counter(in_source) - Counter(in_output), Counter(in_output) - Counter(in_source)
    return list(lost.elements()), list(added.elements())
