"""Who may ask, and how much: keys that are stored as hashes, and a bucket of tokens for every client.

keys file    name:sha256-of-the-key, one a line; `heedful serve --new-key NAME` writes one and shows the key once
bucket       holds `burst` tokens and fills by `rate` a second; who finds it empty is told when to come again
"""

import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from heedful.errors import ConfigError

CLIENTS = 65_536  # whose buckets are remembered
NAME = re.compile(r"[\w.@-]{1,64}")


def digest(key: str) -> str:
    """What is stored of a key."""
    return sha256(key.encode("utf-8", "replace")).hexdigest()


def read_keys(path: Path) -> dict[str, str]:
    """Hash -> name."""
    found: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ConfigError(
            f"--keys {path} cannot be read: there is no such file. Make one: heedful serve MODEL --keys {path} "
            "--new-key NAME"
        ) from None
    except OSError as error:
        raise ConfigError(f"--keys {path} cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, hashed = line.strip().partition(":")
        if not (name and colon) or len(hashed) != 64 or set(hashed) - set("0123456789abcdef"):
            raise ConfigError(f"{path}, line {number}: write NAME:SHA256, or let heedful serve --new-key NAME do it")
        found[hashed] = name
    if not found:
        raise ConfigError(f"{path} holds no keys: heedful serve --keys {path} --new-key NAME")
    return found


def new_key(path: Path, name: str) -> str:
    """Add a key to the file; what is returned is stored nowhere."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"--new-key `{name}`: a name is made of letters, digits, dots and dashes")
    key = secrets.token_urlsafe(32)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * (before[-1:] not in ("", "\n")) + f"{name}:{digest(key)}\n")
    path.chmod(0o600)
    return key


def owner(keys: Mapping[str, str], key: str) -> str | None:
    """Whose key this is. Every stored hash is compared, and each in constant time: how long it takes tells nothing."""
    asked, found = digest(key), None
    for hashed, name in keys.items():
        if compare_digest(asked, hashed):
            found = name
    return found


@dataclass(slots=True)
class Bucket:
    """Tokens that a client may still spend."""

    level: float
    filled: float


class Buckets:
    """One for each client; those who have not come for longest are forgotten first."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = rate, burst
        self.clients: OrderedDict[str, Bucket] = OrderedDict()

    def spend(self, client: str, amount: float) -> float:
        """0 where it may be spent, and then it is; else the seconds until it may."""
        now = time.monotonic()
        bucket = self.clients.get(client)
        if bucket is None:
            bucket = self.clients[client] = Bucket(self.burst, now)
            if len(self.clients) > CLIENTS:
                self.clients.popitem(last=False)
        self.clients.move_to_end(client)
        bucket.level = min(self.burst, bucket.level + (now - bucket.filled) * self.rate)
        bucket.filled = now
        wanted = min(amount, self.burst)
        if bucket.level >= wanted:
            bucket.level -= wanted
            return 0.0
        return (wanted - bucket.level) / self.rate
