"""The demo's access log is reproducible, has Nginx's format, and is counted correctly."""

import re
from collections import Counter

from penstock.cli.access_log import count_urls, write_access_log
from penstock.cli.demo_job import url_of

COMBINED = re.compile(r'\S+ - - \[\d\d/\w{3}/\d{4}:[\d:]{8} \+0000\] "GET (/\S*) HTTP/1\.1" \d{3} \d+ "-" "[^"]+"')


def lines_of(folder):
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def test_every_line_is_a_request_in_the_combined_format(tmp_path):
    assert write_access_log(tmp_path / "log", 1_000, 3) == 1_000
    lines = lines_of(tmp_path / "log")
    assert len(lines) == 1_000
    assert all(COMBINED.fullmatch(line) for line in lines)


def test_the_seed_determines_the_log(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_access_log(tmp_path / name, 500, 2, seed)
    assert lines_of(tmp_path / "a") == lines_of(tmp_path / "b") != lines_of(tmp_path / "c")


def test_modification_times_order_the_files_for_spark(tmp_path):
    write_access_log(tmp_path / "log", 103, 10)
    files = sorted((tmp_path / "log").iterdir())
    moments = [path.stat().st_mtime_ns // 1_000_000 for path in files]
    assert moments == sorted(set(moments))
    assert [len(path.read_text().splitlines()) for path in files] == [11, 11, 11, 10, 10, 10, 10, 10, 10, 10]


def test_a_few_urls_get_most_of_the_requests(tmp_path):
    write_access_log(tmp_path / "log", 20_000, 1)
    counts = count_urls(tmp_path / "log")
    assert 200 < len(counts) <= 301
    assert sum(count for _, count in counts.most_common(30)) > 10_000


def test_the_plain_count_agrees_with_the_jobs_parser(tmp_path):
    write_access_log(tmp_path / "log", 2_000, 4)
    lines = lines_of(tmp_path / "log")
    counts = count_urls(tmp_path / "log")
    assert counts == Counter(COMBINED.fullmatch(line)[1] for line in lines)
    assert counts == Counter(url_of([line]) for line in lines)
