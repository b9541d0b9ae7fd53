"""Language codes: three-letter codes, codes with a region, and the names of languages."""

LONG_CODES = {
    "eng": "en", "deu": "de", "ger": "de", "fra": "fr", "fre": "fr", "spa": "es", "por": "pt", "ita": "it", "nld": "nl",
    "dut": "nl", "swe": "sv", "dan": "da", "nor": "no", "nob": "no", "nb": "no", "fin": "fi", "pol": "pl", "ces": "cs",
    "cze": "cs", "ron": "ro", "rum": "ro", "hun": "hu", "tur": "tr", "ind": "id", "vie": "vi", "cat": "ca", "rus": "ru",
    "ukr": "uk", "bul": "bg", "srp": "sr", "ell": "el", "ara": "ar", "heb": "he", "hin": "hi", "ben": "bn", "jpn": "ja",
    "zho": "zh", "cmn": "zh", "kor": "ko", "tha": "th", "fas": "fa", "kat": "ka", "hye": "hy",
}  # fmt: skip
LANGUAGE_NAMES = {  # others are shown by their code
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian",
    "nb": "Norwegian", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili",
    "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def base_language(code: str) -> str:
    """The two-letter code of a language code: pt-BR, por -> pt."""
    code = code.lower().replace("_", "-").split("-")[0]
    return LONG_CODES.get(code, code)


def language_name(code: str | None) -> str:
    """The English name of a language, or its code."""
    return LANGUAGE_NAMES.get(base_language(code or ""), code or "?")
