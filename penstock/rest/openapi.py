"""The OpenAPI document of the REST interface, generated from the tables of endpoints and their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

import penstock
from penstock.rest.endpoints import Endpoint, Nothing
from penstock.rest.errors import ErrorBody

_REF = "#/components/schemas/{name}"
_ERRORS = {
    "400": "The request is malformed.",
    "401": "The token is missing or wrong.",
    "403": "The request comes from a foreign page, or a setting forbids it.",
    "404": "The path names an object that does not exist.",
    "409": "The state of the job does not permit the request.",
    "410": "The checkpoint can no longer be read.",
    "413": "The body is too large.",
    "429": "Too many reads of state are running.",
    "500": "An error of the service.",
    "502": "The service has not the token of the state server, or does not trust it.",
    "503": "The service or a JobManager cannot answer now.",
}


def document(endpoints: Iterable[Endpoint], texts: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the document. `texts` are the endpoints whose answer is not JSON."""
    endpoints, texts = list(endpoints), list(texts)
    types = [ErrorBody, *(each.answer for each in endpoints), *(each.body for each in endpoints if each.body)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    answers = dict(zip(range(len(endpoints)), schemas[1:]))
    bodies = iter(schemas[1 + len(endpoints) :])
    paths: dict[str, dict[str, Any]] = {}
    for number, endpoint in enumerate(endpoints):
        content = {"application/json": {"schema": answers[number]}}
        operation = _operation(endpoint, content, schemas[0])
        if endpoint.multipart:
            operation["requestBody"] = {"content": {"multipart/form-data": {"schema": _FILE}}}
            if endpoint.body:
                next(bodies)
        elif endpoint.body:
            operation["requestBody"] = {"content": {"application/json": {"schema": next(bodies)}}}
        paths.setdefault(_path(endpoint), {})[endpoint.method.lower()] = operation
    for endpoint in texts:
        content = {endpoint.answer: {"schema": {"type": "string"}}}
        paths.setdefault(_path(endpoint), {})[endpoint.method.lower()] = _operation(endpoint, content, schemas[0])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": penstock.__version__,
            "description": "Flink's REST API, version 1, and Penstock's additions below /penstock/v1/.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


_FILE = {"type": "object", "properties": {"jarfile": {"type": "string", "format": "binary"}}}


def _operation(endpoint: Endpoint, content: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    names = [segment[1:] for segment in endpoint.path.split("/") if segment.startswith(":")]
    responses: dict[str, Any] = {
        status: {"description": text, "content": {"application/json": {"schema": error}}}
        for status, text in _ERRORS.items()
    }
    responses[str(endpoint.status)] = {
        "description": "An empty object." if endpoint.answer is Nothing else "The answer.",
        "content": content,
    }
    return {
        "operationId": endpoint.method.lower() + endpoint.path.replace("/", "_").replace(":", ""),
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
            *({"name": name, "in": "query", "schema": {"type": "string"}} for name in endpoint.query),
        ],
        "responses": dict(sorted(responses.items())),
    }


def _path(endpoint: Endpoint) -> str:
    return "/".join(
        f"{{{segment[1:]}}}" if segment.startswith(":") else segment for segment in endpoint.path.split("/")
    )
