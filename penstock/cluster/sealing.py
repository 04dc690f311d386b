"""Encryption of the parts of records that can hold secrets: arguments, settings and the paths of savepoints.

The key lies in the storage of the cluster, in a file that only this user can read. Backups of the records without the
key, and people who only see the records, learn no secret.
"""

from __future__ import annotations

import base64
import hashlib

from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.credentials import shared_secret
from penstock.errors import PenstockError

KEY = "record-key"
"""The name of the key in the storage."""


class MissingService(PenstockError):
    """The packages of the service are not installed.

    Operator action: run `pip install 'penstock[service]'` on the hosts of the Dispatchers.
    """

    retryable = False


class CannotOpen(PenstockError):
    """A record was encrypted with another key, or is damaged.

    Operator action: restore `record-key` in the storage of the cluster, together with the records, from one backup.
    """

    retryable = False


class Seal:
    """Encrypts and decrypts with the key of one cluster."""

    def __init__(self, storage: SharedStorage) -> None:
        """Read the key from the storage, or create it there."""
        try:
            from cryptography.fernet import Fernet, InvalidToken
        except ImportError:
            raise MissingService(
                "Jobs of a cluster need the package cryptography, which is not installed.",
                fix="Run: pip install 'penstock[service]'",
            ) from None
        secret = shared_secret(storage, KEY)
        self._where = storage.where
        self._invalid = InvalidToken
        self._fernet = Fernet(base64.urlsafe_b64encode(hashlib.sha256(secret.encode()).digest()))

    def close(self, content: bytes) -> str:
        """Return the content, encrypted."""
        return self._fernet.encrypt(content).decode()

    def open(self, sealed: str) -> bytes:
        """Return the content of encrypted text. Raises CannotOpen."""
        try:
            return self._fernet.decrypt(sealed)
        except (self._invalid, ValueError):  # text with letters that no encrypted text has
            raise CannotOpen(
                f"A record of the cluster in {self._where} was encrypted with another key than {KEY}, or is damaged.",
                fix=f"Restore {KEY} and the records from the same backup.",
            ) from None
