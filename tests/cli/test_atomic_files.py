"""Files that appear whole or not at all."""

import os

import pytest

from cli.atomic_files import replacing, write_whole


def test_a_file_is_replaced(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("before")
    link.symlink_to(path)
    with replacing(link) as file:
        file.write(b"after")
        assert path.read_text() == "before"
    assert path.read_text() == "after" and link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_what_breaks_off_changes_nothing(error, tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(error), replacing(path) as file:  # noqa: PT012
        file.write(b"half")
        raise error("stop")
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]


def test_the_error_names_the_file(tmp_path):
    path = tmp_path / "nowhere" / "file"
    with pytest.raises(FileNotFoundError) as caught, replacing(path):
        pass
    assert caught.value.filename == str(path)


def test_a_device_is_written_to():
    with replacing("/dev/null") as file:
        file.write(b"nothing")
    assert not os.path.isfile("/dev/null")


def test_text(tmp_path):
    write_whole(tmp_path / "text", "12 × 15\n")
    assert (tmp_path / "text").read_bytes() == "12 × 15\n".encode()
