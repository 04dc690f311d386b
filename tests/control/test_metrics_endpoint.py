"""The endpoint for Prometheus: its settings, its ports, and who can read it."""

import http.client
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.common.options import BadSetting
from penstock.common.options.metrics import prometheus_reporters
from penstock.control.metrics_endpoint import serve_metrics
from penstock.driver.job_snapshot import JobSnapshot

FACTORY = "org.apache.flink.metrics.prometheus.PrometheusReporterFactory"
JOB = JobSnapshot(id="1" * 32, name="word count", state="RUNNING")


def ports(**settings: str) -> list[tuple[str, tuple[int, ...]]]:
    configured = {f"metrics.{key.replace('__', '.')}": value for key, value in settings.items()}
    return [(each.name, each.ports) for each in prometheus_reporters(configured)]


class TestTheSettings:
    def test_settings_without_a_port_and_a_class_start_no_endpoint(self) -> None:
        assert ports() == []
        assert ports(reporters="prom") == []

    def test_a_port_alone_is_enough(self) -> None:
        assert ports(reporter__prom__port="9300") == [("prom", (9300,))]

    def test_ports_are_a_range_or_a_list_as_in_flink(self) -> None:
        assert ports(reporter__prom__port="9250-9252") == [("prom", (9250, 9251, 9252))]
        assert ports(reporter__prom__port="9300, 9250-9251") == [("prom", (9300, 9250, 9251))]

    @pytest.mark.parametrize("name", ["prom", "mine"])
    def test_the_class_of_flink_starts_an_endpoint_under_any_name(self, name: str) -> None:
        assert ports(**{f"reporter__{name}__factory__class": FACTORY}) == [(name, (9249,))]
        assert ports(
            **{
                f"reporter__{name}__class": FACTORY.replace("ReporterFactory", "Reporter"),
                f"reporter__{name}__port": "1",
            }
        ) == [(name, (1,))]

    def test_a_reporter_of_another_class_is_none(self) -> None:
        other = "org.apache.flink.metrics.jmx.JMXReporterFactory"
        assert ports(reporter__prom__factory__class=other, reporter__prom__port="8789") == []

    def test_a_list_of_reporters_leaves_out_the_others(self) -> None:
        two = {"reporter__a__factory__class": FACTORY, "reporter__b__factory__class": FACTORY}
        assert [name for name, _ in ports(**two, reporters="b, c")] == ["b"]
        assert [name for name, _ in ports(**two)] == ["a", "b"]

    def test_an_invalid_port_names_the_setting(self) -> None:
        with pytest.raises(BadSetting, match=r"metrics\.reporter\.mine\.port is 'x'"):
            ports(reporter__mine__factory__class=FACTORY, reporter__mine__port="x")


@contextmanager
def served(caplog: pytest.LogCaptureFixture, jobs: list[JobSnapshot] | None = None, **more: str) -> Iterator[int]:
    """Serve the metrics on a free port, which is read off the log as a user would."""
    settings = {"metrics.reporter.prom.port": "0"} | more
    found = [JOB] if jobs is None else jobs
    with caplog.at_level(logging.INFO, "penstock"):
        stop = serve_metrics(settings, lambda: found, "job 'word count'")
    (line,) = [each.getMessage() for each in caplog.records if "Prometheus" in each.getMessage()]
    try:
        yield int(line.rpartition(":")[2].partition("/")[0])
    finally:
        stop()


def asked(port: int, host: str = "", method: str = "GET", path: str = "/metrics") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


class TestTheEndpoint:
    def test_the_endpoint_answers_at_any_path(self, caplog: pytest.LogCaptureFixture) -> None:
        parser = pytest.importorskip("prometheus_client.parser")
        with served(caplog) as port:
            for path in ("/metrics", "/"):
                status, text = asked(port, path=path)
                names = {family.name: family for family in parser.text_string_to_metric_families(text)}
                assert status == 200
                (sample,) = names["flink_jobmanager_job_uptime"].samples
                assert sample.labels["job_name"] == "word_count"

    def test_the_values_of_labels_can_stay_as_they_are(self, caplog: pytest.LogCaptureFixture) -> None:
        with served(caplog, **{"metrics.reporter.prom.filterLabelValueCharacters": "false"}) as port:
            assert 'job_name="word count"' in asked(port)[1]

    def test_a_foreign_host_name_is_refused_on_loopback(self, caplog: pytest.LogCaptureFixture) -> None:
        with served(caplog) as port:
            assert asked(port, host=f"rebound.example:{port}")[0] == 403
            assert asked(port, host="rebound.example")[0] == 403
            for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", "[::1]", f"[::1]:{port}"):
                assert asked(port, host=host)[0] == 200

    def test_nothing_but_reading_is_possible(self, caplog: pytest.LogCaptureFixture) -> None:
        with served(caplog) as port:
            assert asked(port, method="POST")[0] == 501
            assert asked(port, method="HEAD") == (200, "")

    def test_a_job_that_cannot_be_read_is_an_error_and_not_an_empty_answer(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with served(caplog, jobs=[None]) as port:  # type: ignore[list-item]
            assert asked(port)[0] == 503

    def test_a_client_that_sends_nothing_does_not_hold_up_another(self, caplog: pytest.LogCaptureFixture) -> None:
        with served(caplog) as port, socket.create_connection(("127.0.0.1", port)):
            assert asked(port)[0] == 200

    def test_the_port_is_free_after_the_end(self, caplog: pytest.LogCaptureFixture) -> None:
        with served(caplog) as port:
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


class TestPortsThatAreTaken:
    def test_the_next_port_of_the_range_is_taken(self, caplog: pytest.LogCaptureFixture) -> None:
        with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
            free = second.getsockname()[1]
            second.close()
            ports = f"{first.getsockname()[1]},{free}"
            with served(caplog, **{"metrics.reporter.prom.port": ports}) as port:
                assert port == free
                assert asked(port)[0] == 200

    def test_a_job_without_a_free_port_runs_without_an_endpoint_and_says_so(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            serve_metrics({"metrics.reporter.prom.port": str(port)}, lambda: [JOB], "job 'word count'")()
        (warning,) = [each.getMessage() for each in caplog.records]
        assert f"cannot listen on 127.0.0.1, port {port}" in warning
        assert "Give metrics.reporter.prom.port a range" in warning
