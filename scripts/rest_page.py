"""The page docs/reference/rest.md, from the tables of endpoints and the types of the REST interface."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.rest.endpoints import ENDPOINTS, Endpoint, Nothing
from penstock.rest.own_endpoints import OWN_ENDPOINTS, TEXT_ENDPOINTS

INTRODUCTION = """\
# REST

`penstock cluster start` serves all jobs of a cluster, and `penstock run --web` its own job, under
`http://127.0.0.1:8081` (`rest.bind-address`, `rest.port`). The interface is that of Flink's REST API, version 1: tools
written for Flink work unchanged with `rest.auth.enabled: false`. `GET /penstock/v1/openapi.json` returns the interface
as an OpenAPI document.

```sh
curl -H "Authorization: Bearer $(cat ~/.local/state/penstock/cluster/token)" http://127.0.0.1:8081/jobs/overview
```

## Rules

- `/v1/x` and `/x` are the same.
- An error is `{"errors": ["text"]}` with status 400 (bad request), 401 (no token), 403 (refused), 404 (unknown), 405
  (wrong method), 409 (the state of the job does not permit it), 413 (too large), 500 or 503. An answer without content
  is `{}`.
- `/penstock/v1/jobs/:jobid/states` and the paths below read [queryable
  state](../query/queryable-state.md#read-it-over-rest).
  Errors have the code of the error in the header `X-Penstock-Error`, and some have status 410 (the checkpoint is
  gone), 429 (too many reads) or 502 (the service lacks the token of the state server).
- A savepoint, stop, checkpoint, rescale or disposal answers at once with a `request-id`. Poll the path that ends in
  `:triggerid` until `status.id` is `COMPLETED`; `operation` then has the result or a `failure-cause`. If you choose the
  `triggerId` yourself, you can repeat the request safely. Results are kept for `rest.async.store-duration`. Poll a stop
  under `/jobs/:jobid/savepoints/:triggerid`. While a job is being stopped, another operation is answered with 409; you
  can still cancel the job.
- `…/metrics` lists the ids of metrics; with `get=a,b` it returns their values. The aggregating ones (`/jobs/metrics`,
  `/taskmanagers/metrics`, `…/subtasks/metrics`) also take `agg` (`min`, `max`, `avg`, `sum`, `skew`) and a selector.
- `/jobs/:jobid/exceptions` also lists each attempt that was lost with its process, and the verdict on a job that
  failed. The labels `attempt` and `restart` number the attempts of the cluster and the restarts of the strategy.
- An event of `/penstock/v1/events` has a number, its id. A client resumes with `Last-Event-ID` or `after`. The event
  `gap` stands for events that were dropped; look up the state of the jobs when you receive it.
- Paths below `/penstock/v1/agent/` are for the Dispatchers of a cluster among themselves. They can change at any time.
- Job ids and vertex ids have 32 lower-case hexadecimal digits.
- `POST /jars/upload` takes a program as `.py`, `.zip` or `.whl`, and `POST /jars/:jarid/run` runs it. `entryClass`
  names the module. Flink's `org.apache.flink.client.python.PythonDriver` with `-py`, `-pym`, `-pyfs`, `-pyreq` and
  `-pyarch` among the arguments is understood. The claim mode `LEGACY` has the meaning of `NO_CLAIM`. `POST /jobs` takes
  Java's job graphs and is refused.
- Of an executor in another JVM, Spark reports only the highest use of memory so far, which `heapUsed` and
  `heapCommitted` show. `timeSinceLastHeartbeat` is the last time at which the job asked Spark for its executors.
- The logs of an executor (`/taskmanagers/:taskmanagerid/log`, `…/logs`, `…/stdout`) are those of its job, to which the
  workers of a `local` master write. Spark keeps the logs of executors in other processes; the page of the job [shows or
  links to them](../run/web.md#look-at-a-job).
- Values that have no meaning on Spark are 0 or empty: memory other than heap and physical memory, `dataPort`,
  `jmxPort`, `alignment_buffered`, `processed_data`, `persisted_data`, `savepointFormat`, `slotSharingGroupId`, the
  history of rescales, and the threads and flame graphs of executors.

## Access

Upload and run is code execution as the user of the service. Every request is therefore checked:

1. `Host` must name the service: a loopback name, its address, or a name in `rest.allowed-hosts`.
2. `Origin`, if there is one, must equal `Host`, and `Sec-Fetch-Site` must not be that of a foreign page.
3. `Authorization: Bearer <token>` must have the token in `rest.auth.token-file`, which only the user of the service can
   read. `/health` and `/ready` need none.
4. With `rest.auth.enabled: false`, an action that comes from a browser needs the content type `application/json` or the
   header `X-Penstock-Request`, which a form on a foreign page cannot send.

Beyond loopback the service requires TLS: set `rest.ssl.certificate` and `rest.ssl.private-key`. `web.submit.enable`,
`web.cancel.enable` and `web.state.enable` switch parts off. Secrets in settings, arguments and errors are masked.
Actions are recorded in `audit.log` in `cluster.dir`.
"""

NEXT = """\
## Next

- [The service](../run/service.md): start a cluster and submit jobs
- [Settings](settings.md): the settings that start with `rest.` and `web.`
"""

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any", type(None): "null"}


def rest_page() -> str:
    """Return the text of docs/reference/rest.md."""
    known: dict[str, type] = {}
    parts = [INTRODUCTION]
    for title, endpoints in (
        ("Endpoints of Flink", ENDPOINTS),
        ("Endpoints of Penstock", OWN_ENDPOINTS),
        ("Plain text and events", TEXT_ENDPOINTS),
    ):
        parts.append(f"## {title}\n\n" + "\n".join(_table(endpoints, known)) + "\n")
    parts.append("## Types\n\n" + "\n".join(_types(known)))
    return "\n".join([*parts, NEXT])


def _table(endpoints: tuple[Endpoint, ...], known: dict[str, type]) -> Iterator[str]:
    yield "| Request | Query | Body | Status | Answer |"
    yield "|---|---|---|---|---|"
    for each in sorted(endpoints, key=lambda endpoint: (endpoint.path, endpoint.method)):
        query = ", ".join(f"`{name}`" for name in each.query)
        body = "multipart" if each.multipart else "" if each.body is None else _shown(each.body, known)
        answer = each.answer if isinstance(each.answer, str) else _shown(each.answer, known)
        yield f"| `{each.method} {each.path}` | {query} | {body} | {each.status} | {answer} |"


def _types(known: dict[str, type]) -> Iterator[str]:
    done: set[str] = set()
    while missing := sorted(known.keys() - done):
        for name in missing:
            done.add(name)
            for field in msgspec.structs.fields(known[name]):
                _shown(field.type, known)
    for name in sorted(known):
        yield f"### {name}\n"
        yield "| Field | Type |"
        yield "|---|---|"
        for field in msgspec.structs.fields(known[name]):
            yield f"| `{field.encode_name}` | {_shown(field.type, known)} |"
        yield ""


def _shown(form: Any, known: dict[str, type]) -> str:
    """Return a type in words, and add the structs in it to `known`."""
    origin, arguments = typing.get_origin(form), typing.get_args(form)
    if form == Nothing:
        return "an empty object"
    if form in _PLAIN:
        return _PLAIN[form]
    if origin is typing.Annotated:
        return _shown(arguments[0], known)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is list:
        return f"list of {_shown(arguments[0], known)}"
    if origin is dict:
        return f"map of {_shown(arguments[1], known)}"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_shown(each, known) for each in arguments)
    if isinstance(form, type) and issubclass(form, msgspec.Struct):
        known[form.__name__] = form
        return f"[{form.__name__}](#{form.__name__.lower()})"
    return "JSON"
