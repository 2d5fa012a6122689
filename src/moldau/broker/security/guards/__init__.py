"""Guards: what each API checks before it serves a request, and its response where something is refused."""
