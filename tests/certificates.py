"""Certificates for tests of TLS."""

import subprocess
from pathlib import Path


def self_signed(folder: Path, address: str = "127.0.0.1") -> tuple[str, str]:
    """Create a certificate of this host and its key, and return their paths. The certificate is its own authority."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    extra = ["-addext", f"subjectAltName=DNS:localhost,IP:{address}", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run([*command.split(), *extra], cwd=folder, check=True, capture_output=True)
    return str(folder / "cert.pem"), str(folder / "key.pem")
