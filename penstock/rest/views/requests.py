"""What a view receives from a request, and how it refuses one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import PenstockError

PathParams = Mapping[str, str]
"""Values of the path's parameters, by name without the colon: `{"jobid": …, "vertexid": …}`."""
Query = Mapping[str, str]
"""Values of the query, by name. Lists are separated by commas, as in `get=a,b`."""
View = Callable[[Any, PathParams, Query], Any]
"""A pure function from one snapshot, or from all of them, to the answer of an endpoint."""


class NotFound(PenstockError):
    """The path names an object that does not exist. The REST interface answers 404.

    Operator action: check the id in the path; `GET /jobs/:jobid` lists the vertices of a job.
    """


class BadQuery(PenstockError):
    """A parameter of the path or of the query is invalid. The REST interface answers 400.

    Operator action: correct the parameter that the message names.
    """
