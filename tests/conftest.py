"""Fixtures for all tests."""

import os

import pytest


@pytest.fixture(scope="session")
def bootstrap() -> str:
    """The address of a running broker."""
    address = os.environ.get("MOLDAU_TEST_BOOTSTRAP")
    if not address:
        pytest.skip("needs a broker: set MOLDAU_TEST_BOOTSTRAP=HOST:PORT")
    return address
