"""Hot modules run both ways in `make test`: as Python here and compiled in brokers, then the other way round."""

import os
import sys

import pytest

from moldau import compiled
from moldau.wire.hot import produce
from support.brokers.processes import BrokerProcess


def test_they_are_compiled_on_one_side_alone(own_broker: BrokerProcess, on_apache: bool) -> None:
    if on_apache or compiled.modules.reason:
        pytest.skip("needs the compiled modules of this checkout: make compile")
    swapped = os.environ.get("MOLDAU_TEST_SWAPPED") == "1"
    assert (compiled.modules in sys.meta_path) is swapped
    assert str(produce.__file__).endswith(".so") is swapped
    assert ("hot modules compiled" in own_broker.log_text()) is not swapped
