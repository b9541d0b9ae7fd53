"""Error responses in the vendor's format, selected by path. Vendors return 403 for a wrong key."""

from collections.abc import Callable
from typing import Any

ErrorFormat = Callable[[int, str], tuple[int, dict[str, Any]]]  # (status, message) -> (status, body)


def format_libretranslate_error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    return 403 if status == 401 else status, {"error": message}


def format_deepl_error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    return 403 if status == 401 else status, {"message": message}


def format_google_error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    status = 403 if status == 401 else status
    return status, {"error": {"code": status, "message": message}}


def format_native_error(status: int, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": message}


ERROR_FORMATS: dict[str, ErrorFormat] = {  # by prefix of the path
    "/translate": format_libretranslate_error,
    "/detect": format_libretranslate_error,
    "/v2/": format_deepl_error,
    "/language/": format_google_error,
}


def find_error_format(path: str) -> ErrorFormat:
    """Return the format for a path; heedful's own unless the path belongs to a vendor."""
    return next((form for prefix, form in ERROR_FORMATS.items() if path.startswith(prefix)), format_native_error)
