"""Checks before Spark starts. Spark would find these mistakes only after a minute, or ignore them."""

from __future__ import annotations

import glob
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from urllib.parse import unquote, urlsplit

from penstock.common.options import BadSetting
from penstock.errors import PenstockError

_CONNECT_S = 5.0
_FILES = ("spark.jars", "spark.submit.pyFiles", "spark.files", "spark.archives")
"""Settings with comma-separated lists of files."""
_COORDINATES = re.compile(r"[^:/\s]+[:/][^:/\s]+[:/][^:/\s]+")


class SparkUnreachable(PenstockError):
    """No Spark master answers. Operator action: start the master, or correct `spark.master`."""


def check_before_start(conf: Mapping[str, str]) -> None:
    """Raise if Spark could not start with this configuration, or would ignore part of it."""
    check_files(conf)
    check_packages(conf.get("spark.jars.packages", ""))
    check_master(conf.get("spark.master", ""))


def check_files(conf: Mapping[str, str]) -> None:
    for key in _FILES:
        for name in filter(None, map(str.strip, conf.get(key, "").split(","))):
            check_file(key, name)


def check_file(setting: str, name: str) -> None:
    """Raise if a local path does not exist. Remote paths (hdfs:, https:) are left to Spark."""
    parts = urlsplit(name)
    if parts.scheme not in ("", "file"):
        return
    # The part after # is the name of an archive's folder after unpacking.
    path = unquote(parts.path) if parts.scheme else name.partition("#")[0]
    if os.path.exists(path) or (glob.has_magic(path) and glob.glob(path)):
        return
    raise BadSetting(
        f"{setting} names '{name}', but this file does not exist.",
        fix="Correct the path, or remove it if the program does not need the file.",
    )


def check_packages(packages: str) -> None:
    for package in filter(None, map(str.strip, packages.split(","))):
        if not _COORDINATES.fullmatch(package):
            raise BadSetting(
                f"spark.jars.packages names '{package}', which is not a Maven coordinate.",
                fix="Write groupId:artifactId:version, such as org.apache.spark:spark-avro_2.13:4.0.0.",
            )


def check_master(master: str) -> None:
    """Raise if `master` is invalid, or if no master of the cluster accepts connections."""
    if master and master != "yarn" and not master.startswith(("local", "spark://", "k8s://")):
        raise BadSetting(
            f"spark.master is '{master}', which is not a valid Spark master.",
            fix="Set it to local[*], spark://HOST:PORT, k8s://HOST:PORT or yarn.",
        )
    problems = []
    for host, port in _addresses(master):
        try:
            with closing(socket.create_connection((host, port), _CONNECT_S)):
                return
        except socket.gaierror:
            problems.append(f"the host '{host}' is unknown")
        except TimeoutError:
            problems.append(f"{host}:{port} does not answer within {_CONNECT_S:.0f} s")
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or error}")
    if problems:
        raise SparkUnreachable(
            f"spark.master is '{master}', but no Spark master can be reached there: {'; '.join(problems)}.",
            fix="Start the master, or correct spark.master. To run on this machine alone, set it to local[*].",
        )


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    if master.startswith("k8s://"):
        address = urlsplit(master.removeprefix("k8s://"))
        if address.hostname:
            yield address.hostname, address.port or (80 if address.scheme == "http" else 443)
    elif master.startswith("spark://"):
        for address_text in master.removeprefix("spark://").split(","):
            host, _, port = address_text.rpartition(":")
            if not host or not port.isdigit():
                raise BadSetting(
                    f"spark.master is '{master}', but '{address_text}' is not a host and a port.",
                    fix="Use spark://HOST:PORT. The default port of a standalone master is 7077.",
                )
            yield host.strip("[]"), int(port)
