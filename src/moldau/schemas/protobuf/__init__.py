"""Protobuf: .proto files and descriptors, their normal form, compatibility, and decoding of payloads."""
