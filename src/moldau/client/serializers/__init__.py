"""Keys and values as bytes: the port, and serializers for plain types, models and encrypted values."""
