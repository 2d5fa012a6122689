"""`moldau certs`: certificates for tests and laptops."""
