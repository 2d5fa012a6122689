"""A follower's log: what comes from the leader is appended as it is, and what is wrong with it is noticed."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.following import CorruptCopy, cut
from moldau.log.log import Log
from support.batches import NOW, a_batch, open_log

pytestmark = pytest.mark.usefixtures("tmp_path")
