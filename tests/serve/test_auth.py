"""API keys."""

import pytest

from heedful.errors import ConfigError
from heedful.serve.auth import create_key, find_key_name, hash_key, read_keys


def test_a_key_is_shown_once_and_stored_as_a_hash(tmp_path):
    path = tmp_path / "keys"
    keys = {name: create_key(path, name) for name in ("ann", "bob")}
    text = path.read_text()
    assert not any(key in text for key in keys.values())
    assert path.stat().st_mode & 0o077 == 0
    known = read_keys(path)
    assert {name: find_key_name(known, key) for name, key in keys.items()} == {"ann": "ann", "bob": "bob"}
    assert find_key_name(known, "") is None
    assert find_key_name(known, hash_key(keys["ann"])) is None


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "ann\n", "ann:123\n", ":" + "a" * 64 + "\n", "ann:" + "G" * 64 + "\n"]
)
def test_invalid_keys_files_are_rejected(text, tmp_path):
    (tmp_path / "keys").write_text(text)
    with pytest.raises(
        ConfigError,
        match=r"expected NAME:SHA256\. Remove the line; to add a|contains no keys\. To add one: heedful serve MODEL",
    ):
        read_keys(tmp_path / "keys")
    with pytest.raises(ConfigError, match=r"cannot be read: there is no such file\. To create it"):
        read_keys(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"--keys .* cannot be read: "):
        read_keys(tmp_path)


def test_invalid_key_names_are_rejected(tmp_path):
    with pytest.raises(ConfigError, match="--new-key `a:b`: use 1 to 64 letters, digits"):
        create_key(tmp_path / "keys", "a:b")
