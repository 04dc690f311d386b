"""Many clients that poll the service."""
