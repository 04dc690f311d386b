"""Files held by a live process, and paths that no longer lead to them."""

import os

from penstock.common.held import leads_to


def test_a_path_leads_to_an_open_file_until_it_is_replaced(tmp_path):
    path = tmp_path / "held"
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        assert leads_to(path, file)
        path.unlink()
        assert not leads_to(path, file)
        path.touch()
        assert not leads_to(path, file)
    finally:
        os.close(file)


def test_a_path_below_a_reused_descriptor_leads_nowhere(tmp_path):
    directory = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "held").touch()
    path = tmp_path / "held"
    file = os.open(path, os.O_RDWR)
    below = type(path)(f"/proc/self/fd/{directory}/held")
    try:
        assert leads_to(below, file)
        os.dup2(file, directory)
        assert not leads_to(below, file)
    finally:
        os.close(file)
        os.close(directory)
