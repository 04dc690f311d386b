"""Runs programs one after the other in one process, so that they share one Spark. Reads one line of JSON for each."""

import contextlib
import io
import json
import logging
import runpy
import sys
import traceback


def main() -> None:
    # The examples send all logs to their output, and the log lines of a starting job are not Flink's.
    logging.getLogger("penstock").setLevel(logging.WARNING)
    for line in sys.stdin:
        request = json.loads(line)
        out, err = io.StringIO(), io.StringIO()
        sys.argv = [request["program"], *request["arguments"]]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                runpy.run_path(request["program"], run_name="__main__")
            except Exception:  # the test must see every error
                traceback.print_exc()
        print(json.dumps({"out": out.getvalue(), "err": err.getvalue()}), flush=True)


if __name__ == "__main__":
    main()
