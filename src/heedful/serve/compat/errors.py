"""Error responses in the vendor's format, chosen by the path."""

from collections.abc import Callable
from typing import Any

ErrorFormat = Callable[[int, str], tuple[int, dict[str, Any]]]  # (status, message) -> (status, body)


def format_libretranslate_error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    """LibreTranslate's error; a wrong key is 403."""
    return 403 if status == 401 else status, {"error": message}


def format_deepl_error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    """DeepL's error; a wrong key is 403."""
    return 403 if status == 401 else status, {"message": message}


def format_google_error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    """Google's error; a wrong key is 403."""
    status = 403 if status == 401 else status
    return status, {"error": {"code": status, "message": message}}


def format_native_error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    """The error of heedful's own API."""
    return status, {"error": message}


ERROR_FORMATS: dict[str, ErrorFormat] = {  # by prefix of the path
    "/translate": format_libretranslate_error,
    "/detect": format_libretranslate_error,
    "/v2/": format_deepl_error,
    "/language/": format_google_error,
}


def find_error_format(path: str) -> ErrorFormat:
    """The format for a path; heedful's own if it belongs to no vendor."""
    return next((form for prefix, form in ERROR_FORMATS.items() if path.startswith(prefix)), format_native_error)
