"""The life of a data folder."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

import pytest

from wukongs.durable.life import NAME, life_of
from wukongs.errors import StorageError
from wukongs.store.disk import Disk


class Refusing(Disk):
    """A disk that makes no file."""

    def __init__(self, number: int) -> None:
        self._number = number

    def create(self, path: Path) -> BinaryIO:
        raise OSError(self._number, "refused", str(path))


def test_a_life_is_begun_once(tmp_path: Path) -> None:
    life = life_of(tmp_path)
    assert len(life) == 16
    assert life_of(tmp_path) == life_of(tmp_path, Refusing(errno.EROFS)) == life
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_may_only_be_read_begins_none(tmp_path: Path, number: int) -> None:
    assert life_of(tmp_path, Refusing(number)) == ""


def test_a_disk_that_is_full_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="LIFE"):
        life_of(tmp_path, Refusing(errno.ENOSPC))
