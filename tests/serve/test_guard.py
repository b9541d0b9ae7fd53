"""Keys and buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import ConfigError
from heedful.serve import guard
from heedful.serve.guard import Buckets, digest, new_key, owner, read_keys


def test_a_key_is_shown_once_and_stored_as_a_hash(tmp_path):
    path = tmp_path / "keys"
    keys = {name: new_key(path, name) for name in ("ann", "bob")}
    text = path.read_text()
    assert not any(key in text for key in keys.values())
    assert path.stat().st_mode & 0o077 == 0
    known = read_keys(path)
    assert {name: owner(known, key) for name, key in keys.items()} == {"ann": "ann", "bob": "bob"}
    assert owner(known, "") is None
    assert owner(known, digest(keys["ann"])) is None


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "ann\n", "ann:123\n", ":" + "a" * 64 + "\n", "ann:" + "G" * 64 + "\n"]
)
def test_what_is_not_a_file_of_keys_is_refused(text, tmp_path):
    (tmp_path / "keys").write_text(text)
    with pytest.raises(
        ConfigError, match=r"write NAME:SHA256, or let|holds no keys: heedful serve --keys .* --new-key"
    ):
        read_keys(tmp_path / "keys")
    with pytest.raises(ConfigError, match=r"cannot be read: there is no such file\. Make one"):
        read_keys(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"--keys .* cannot be read: "):
        read_keys(tmp_path)


def test_a_name_of_a_key_is_plain(tmp_path):
    with pytest.raises(ConfigError, match="--new-key `a:b`: a name is made of letters, digits"):
        new_key(tmp_path / "keys", "a:b")


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 200)), max_size=50), st.floats(1, 50), st.floats(1, 100))
def test_nobody_spends_more_than_the_bucket_held_and_got(spent, rate, burst):
    now = 0.0
    guard_time = guard.time.monotonic
    guard.time.monotonic = lambda: now
    try:
        buckets, total = Buckets(rate, burst), 0.0
        for later, amount in spent:
            now += later
            wait = buckets.spend("a", amount)
            assert 0 <= wait <= burst / rate + 1e-6
            total += 0.0 if wait else min(amount, burst)
            assert total <= burst + rate * now + 1e-6
            if wait:
                now += wait + 1e-6
                assert buckets.spend("a", amount) == 0
                total += min(amount, burst)
    finally:
        guard.time.monotonic = guard_time


def test_clients_have_buckets_of_their_own_and_are_forgotten_in_time(monkeypatch):
    monkeypatch.setattr(guard, "CLIENTS", 3)
    buckets = Buckets(rate=1, burst=10)
    assert [buckets.spend(client, 10) for client in "abcd"] == [0, 0, 0, 0]
    assert buckets.spend("d", 10) > 0
    assert len(buckets.clients) == 3
