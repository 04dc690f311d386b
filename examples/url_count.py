"""Count requests per URL in an Nginx access log. Each request emits the URL and its count so far.

penstock run examples/url_count.py              three requests, to see it work
penstock run examples/url_count.py access.log   a file, or a folder of files
"""

import sys
from collections.abc import Iterator

from penstock.datastream import DataStream, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

SAMPLE = [
    '203.0.113.7 - - [14/Nov/2023:22:13:20 +0000] "GET /api/a HTTP/1.1" 200 512 "-" "curl/8.5.0"',
    '203.0.113.9 - - [14/Nov/2023:22:13:20 +0000] "GET /api/b HTTP/1.1" 200 2326 "-" "curl/8.5.0"',
    '203.0.113.7 - - [14/Nov/2023:22:13:21 +0000] "GET /api/a HTTP/1.1" 304 0 "-" "curl/8.5.0"',
]


def url_of(line: str) -> Iterator[str]:
    """Yield the URL of a request, or nothing if the line has none, because clients can send anything."""
    parts = line.split('"')
    request = parts[1].split(" ") if len(parts) > 1 else []
    if len(request) == 3:
        yield request[1]


class UrlCount(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value, count


def url_counts(lines: DataStream) -> DataStream:
    urls = lines.flat_map(url_of, output_type=str)
    return urls.key_by(lambda url: url).process(UrlCount()).uid("url-count").name("count")


def main(arguments: list[str]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    if arguments:
        lines = env.from_spark(env.spark.read.text(arguments[0])).map(lambda row: row.value)
    else:
        lines = env.from_collection(SAMPLE)
    url_counts(lines).print()
    env.execute("url-count")


if __name__ == "__main__":
    main(sys.argv[1:])
