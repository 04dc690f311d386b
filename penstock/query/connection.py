"""A connection to a proxy or a state server: used by clients, and by proxies for state servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import flight

from penstock.query.errors import NotAllowed, NotTrusted, QueryError, Unreachable
from penstock.query.protocol import AnyRequest, decode_failure, encode, error_of

ACTION = "penstock"
"""The type of all Flight actions. The body is the request."""
_UNTRUSTED = ("certificate verify failed", "is not in peer certificate")
"""What gRPC says of a server that it does not trust."""


def location(host: str, port: int, tls: bool) -> str:
    """Return the URI of a server."""
    named = f"[{host}]" if ":" in host else host
    return f"{'grpc+tls' if tls else 'grpc'}://{named}:{port}"


class Connection:
    """A connection, opened at the first request and shared by any number of threads."""

    def __init__(self, address: str, token: str, authorities: str = "") -> None:
        """`authorities`: a PEM file of the authorities to trust; empty for those of the operating system."""
        self.address = address
        self._headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        options: dict[str, Any] = {}
        if authorities:
            options["tls_root_certs"] = Path(authorities).read_bytes()
        self._client = flight.connect(address, **options)

    def call(self, request: AnyRequest, seconds: float) -> bytes:
        """Return the encoded answer to a request. Raises QueryError."""
        options = flight.FlightCallOptions(timeout=seconds, headers=self._headers)
        try:
            results = self._client.do_action(flight.Action(ACTION, encode(request)), options)
            return b"".join(result.body.to_pybytes() for result in results)
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._error(error) from None

    def stream(self, request: AnyRequest, seconds: float) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema and batches of a stream. Raises QueryError, as do the batches."""
        options = flight.FlightCallOptions(timeout=seconds, headers=self._headers)
        try:
            reader = self._client.do_get(flight.Ticket(encode(request)), options)
            return reader.schema, self._batches(reader)
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._error(error) from None

    def _batches(self, reader: Any) -> Iterator[pa.RecordBatch]:
        try:
            while True:
                try:
                    yield reader.read_chunk().data
                except StopIteration:
                    return
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._error(error) from None
        finally:
            reader.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _error(self, error: BaseException) -> QueryError:
        sent = getattr(error, "extra_info", None)
        if sent:
            try:
                return error_of(decode_failure(sent))
            except msgspec.DecodeError:
                pass
        if isinstance(error, flight.FlightUnauthenticatedError):
            return NotAllowed(f"The server at {self.address} rejects the token.", fix="Pass its token.")
        if isinstance(error, flight.FlightTimedOutError):
            problem = f"The server at {self.address} did not answer within the deadline."
            return Unreachable(problem, fix="Try again, or with a later deadline.")
        if isinstance(error, flight.FlightUnavailableError) and any(words in str(error) for words in _UNTRUSTED):
            return NotTrusted(
                f"The certificate of the server at {self.address} is not trusted, or is for another name.",
                fix="Pass authorities=... with a PEM file of its authority (servers: queryable-state.ssl.ca), and "
                "connect to a name that the certificate has.",
            )
        # A server that dies while it answers can look like a call that was cancelled.
        if isinstance(error, (flight.FlightUnavailableError, flight.FlightCancelledError)):
            return Unreachable(
                f"No server answers at {self.address}.", fix="Check the address, and whether the job or server runs."
            )
        return QueryError(
            f"The server at {self.address} failed: {str(error).partition('.')[0][:200]}.",
            fix="The log of the server has the details.",
        )
