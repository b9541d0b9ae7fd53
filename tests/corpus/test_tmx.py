"""Memories that cannot be filled; tests/cli/test_translate.py fills one."""

import pytest

from heedful.corpus.tmx import fill_memory
from heedful.errors import DataError

UNIT = '<tmx version="1.4"><header/><body><tu><tuv xml:lang="fr"><seg>le chien</seg></tuv></tu></body></tmx>'


@pytest.mark.parametrize(
    ("given", "out", "told"),
    [
        ("gone.tmx", "out.tmx", r"there is no file .*gone\.tmx"),
        ("in.tmx", "in.tmx", r"in\.tmx is both input and output: choose another name for the new translation memory"),
        ("in.tmx", "out.tmx.gz", r"gz is a directory or has the name of .* choose .*, for example: new\.tmx"),
        ("in.tmx", ".", "is a directory or has the name"),
        ("in.tmx", "out.tmx", r"no unit of .*in\.tmx has text in en, the source language of the model"),
    ],
)
def test_what_cannot_be_filled_is_told_and_leaves_nothing(tmp_path, given, out, told):
    (tmp_path / "in.tmx").write_text(UNIT)
    with pytest.raises(DataError, match=told):
        fill_memory(tmp_path / given, tmp_path / out, "en", "de", lambda texts: texts)
    assert [path.name for path in tmp_path.iterdir()] == ["in.tmx"]
    assert (tmp_path / "in.tmx").read_text() == UNIT
