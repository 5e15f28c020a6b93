"""The session's gateway."""

from tests.serve.fixtures import gateway

__all__ = ["gateway"]
