"""A job's arguments: from a call to JSON and back, checked against the task's signature at both ends.

Whatever is stored comes back equal: a value that JSON, the annotations or PostgreSQL's jsonb would change is refused
where it is passed, not found out by the handler. Nothing is pickled.
"""

from smena.arguments.arguments import MAX_BYTES, Arguments
from smena.arguments.headers import encode_headers
from smena.arguments.result import encode_result

__all__ = ["MAX_BYTES", "Arguments", "encode_headers", "encode_result"]
