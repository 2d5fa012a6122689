"""The broker: dispatch, one file per API, and the node that puts it together."""
