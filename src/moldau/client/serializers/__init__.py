"""Keys and values as bytes: the port, and serializers for plain types, models and encrypted values."""

from moldau.client.serializers.models import JSON as JSON
from moldau.client.serializers.plain import BYTES as BYTES
from moldau.client.serializers.plain import DOUBLE as DOUBLE
from moldau.client.serializers.plain import INTEGER as INTEGER
from moldau.client.serializers.plain import LONG as LONG
from moldau.client.serializers.plain import STRING as STRING
from moldau.client.serializers.plain import UUID as UUID

__all__ = ["BYTES", "DOUBLE", "INTEGER", "JSON", "LONG", "STRING", "UUID"]
