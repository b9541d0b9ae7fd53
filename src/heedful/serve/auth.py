"""API keys: a file of `name:sha256-of-the-key` lines; `heedful serve --new-key NAME` adds a line and prints the key."""

import re
import secrets
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from heedful.errors import ConfigError

KEY_NAME = re.compile(r"[\w.@-]{1,64}")


def hash_key(key: str) -> str:
    """Return the SHA-256 of a key in hexadecimal, the only form in which it is stored."""
    return sha256(key.encode("utf-8", "replace")).hexdigest()


def read_keys(path: Path) -> dict[str, str]:
    """Read a keys file; return hash -> name of the key."""
    names_by_hash: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ConfigError(
            f"--keys {path} cannot be read: there is no such file. To create it: heedful serve MODEL "
            f"--keys {path} --new-key NAME"
        ) from None
    except OSError as error:
        raise ConfigError(f"--keys {path} cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, key_hash = line.strip().partition(":")
        if not (name and colon) or len(key_hash) != 64 or set(key_hash) - set("0123456789abcdef"):
            raise ConfigError(
                f"{path}, line {number}: expected NAME:SHA256. Remove the line; to add a key: heedful serve "
                f"MODEL --keys {path} --new-key NAME"
            )
        names_by_hash[key_hash] = name
    if not names_by_hash:
        raise ConfigError(f"{path} contains no keys. To add one: heedful serve MODEL --keys {path} --new-key NAME")
    return names_by_hash


def create_key(path: Path, name: str) -> str:
    """Create a key, append its hash to the file and return the key."""
    if not KEY_NAME.fullmatch(name):
        raise ConfigError(f"--new-key `{name}`: use 1 to 64 letters, digits and the characters . @ _ -")
    key = secrets.token_urlsafe(32)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * (before[-1:] not in ("", "\n")) + f"{name}:{hash_key(key)}\n")
    path.chmod(0o600)
    return key


def find_key_name(names_by_hash: Mapping[str, str], key: str) -> str | None:
    """Return the name of a key, or None if it is unknown.

    Every stored hash is compared in constant time, so the duration reveals nothing.
    """
    key_hash, key_name = hash_key(key), None
    for stored_hash, name in names_by_hash.items():
        if compare_digest(key_hash, stored_hash):
            key_name = name
    return key_name
