"""docs/operate/high-availability.md: its settings exist and are accepted, and it names the nodes that are made."""

import re
from pathlib import Path

from penstock.cluster.high_availability import coordination_of
from penstock.cluster.zookeeper import ZooKeeperCoordination
from penstock.cluster.zookeeper_client import ZooKeeperSettings
from penstock.common.options import OPTIONS
from penstock.state.local_storage import LocalStorage

PAGE = (Path(__file__).parents[2] / "docs" / "operate" / "high-availability.md").read_text()


def configured() -> dict[str, str]:
    [block] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    return dict(line.strip().split(": ", 1) for line in block.strip().splitlines())


def test_every_setting_of_the_page_exists() -> None:
    prefixes = r"(?:high-availability|rest|cluster|web|state)\."
    named = set(re.findall(rf"`({prefixes}[\w.-]+)`", PAGE)) | set(configured())
    assert {"high-availability.storageDir", "web.history"} <= named
    assert named - set(OPTIONS) == set()


def test_the_settings_of_the_page_make_a_cluster(tmp_path: Path) -> None:
    assert isinstance(coordination_of(configured(), LocalStorage(tmp_path)), ZooKeeperCoordination)


def test_the_page_shows_the_nodes_that_are_made(tmp_path: Path) -> None:
    settings = ZooKeeperSettings.read(configured(), LocalStorage(tmp_path))
    for path in (settings.latch, settings.agents, settings.jobs, settings.job_managers):
        assert f"\n{path}/…" in PAGE
