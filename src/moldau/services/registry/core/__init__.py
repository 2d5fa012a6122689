"""The registry as values: state that applies records, decisions that return records. No topic, HTTP or clock."""
