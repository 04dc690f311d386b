"""The token that the Dispatchers of one cluster share."""

from pathlib import Path

from penstock.common.tokens import read_token
from penstock.rest.token_file import cluster_token
from penstock.state.local_storage import LocalStorage


def token_of(tmp_path: Path, dispatcher: str, **settings: str) -> str:
    known = {"cluster.dir": str(tmp_path / dispatcher), "high-availability.type": "zookeeper"}
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return cluster_token(known | given, LocalStorage(tmp_path / "records"))


def test_dispatchers_of_one_cluster_have_one_token(tmp_path: Path) -> None:
    assert token_of(tmp_path, "a") == token_of(tmp_path, "b") == read_token(tmp_path / "b" / "token")


def test_a_copy_of_another_token_is_replaced(tmp_path: Path) -> None:
    token = token_of(tmp_path, "a")
    (tmp_path / "a" / "token").write_text("an-older-token-of-this-host\n")
    assert token_of(tmp_path, "a") == token
    assert read_token(tmp_path / "a" / "token") == token


def test_a_single_dispatcher_keeps_its_token_to_itself(tmp_path: Path) -> None:
    token = cluster_token({"cluster.dir": str(tmp_path / "a")}, LocalStorage(tmp_path / "records"))
    assert token == read_token(tmp_path / "a" / "token")
    assert not (tmp_path / "records" / "rest-token").exists()
