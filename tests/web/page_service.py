"""A service with a page in front of a fake cluster, in its own process: NiceGUI has one set of pages per process.

    python page_service.py <folder>

prints the login link, then reads changes from standard input, one per line.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/rest"), str(ROOT / "tests/web")]

from fake_gateway import JOB, FakeGateway, snapshot  # noqa: E402

from penstock.driver.job_snapshot import ExceptionSnapshot, Operation  # noqa: E402
from penstock.rest.assembly import rest_server  # noqa: E402
from penstock.rest.token_file import service_token  # noqa: E402
from penstock.web.login import login_url  # noqa: E402
from penstock.web.mount import add_page  # noqa: E402

HOSTILE = "<img src=x onerror=\"document.title='stolen'\">{{ 6 * 7 }}"


def change(gateway: FakeGateway, command: str) -> None:
    """Change the cluster."""
    job = snapshot(JOB)
    if command == "hostile":
        failure = ExceptionSnapshot(name=HOSTILE, message=HOSTILE, trace=HOSTILE, at_ms=job.taken_ms)
        job = msgspec.structs.replace(job, name=HOSTILE, configuration={HOSTILE: HOSTILE}, exceptions=[failure])
    elif command == "restarting":
        since = {"RESTARTING": job.taken_ms}
        job = msgspec.structs.replace(job, state="RESTARTING", state_since_ms=since, restarts=2)
    elif command == "savepoint":
        gateway.result = Operation(trigger_id="1" * 32, done=True, savepoint="/savepoints/<b>one</b>")
    gateway.by_id = {JOB: job}


def main() -> None:
    """Serve until standard input ends."""
    folder = Path(sys.argv[1])
    (folder / "logs").mkdir(parents=True)
    settings = {
        **{"rest.port": "0", "rest.auth.token-file": str(folder / "token"), "cluster.dir": str(folder)},
        "web.refresh-interval": "1 s",
    }
    gateway = FakeGateway(settings, folder / "logs")
    change(gateway, "")
    server = rest_server(gateway, settings, folder, add_page)
    server.start()
    print(login_url(server.address, service_token(settings)), flush=True)
    for line in sys.stdin:
        change(gateway, line.strip())
        print("done", flush=True)
        # What the page asked for, for the test to read.
        (folder / "asked").write_text(repr(gateway.asked))
    (folder / "asked").write_text(repr(gateway.asked))
    server.stop()


if __name__ == "__main__":
    main()
