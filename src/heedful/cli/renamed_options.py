"""Renamed options and environment variables: the error for an old name suggests the new one."""

import os

from heedful.errors import ConfigError

RENAMED_OPTIONS = {  # (command, old option) -> new option
    ("compare", "--tokenise"): "--tokenize",
    ("evaluate", "--tokenise"): "--tokenize",
    ("export", "--rounding"): "--quantization",
    ("prepare", "--on"): "--cluster",
    ("serve", "--anyone"): "--no-auth",
    ("serve", "--rounding"): "--quantization",
    ("translate", "--least"): "--alignment-threshold",
    ("translate", "--on"): "--cluster",
    ("translate", "--with"): "--ensemble",
}
RENAMED_VARIABLES = {"HEEDFUL_ANYONE": "HEEDFUL_NO_AUTH", "HEEDFUL_ROUNDING": "HEEDFUL_QUANTIZATION"}


def renamed_option_message(command: str | None, option: str) -> str | None:
    """The error message for an old option, or None if it was not renamed."""
    new_option = RENAMED_OPTIONS.get((command or "", option))
    return new_option and f"unknown option `{option}`; it is now `{new_option}`"


def check_environment() -> None:
    """Raise an error for an old environment variable: ignoring it would change how the server behaves."""
    for name, new_name in RENAMED_VARIABLES.items():
        if name in os.environ:
            raise ConfigError(f"unknown environment variable `{name}`; it is now `{new_name}`")
