"""`failOnDataLoss`: what happens when records are gone before they were read. Finds no loss itself."""

import logging
from dataclasses import dataclass

from moldau.spark.cluster import QueryFailed

logger = logging.getLogger("moldau.spark")
REASON = "Records may have been lost: they were deleted, or their topic was, before the query had read them"
REMEDY = "To go on without them set the option failOnDataLoss to false"


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Fails the query, or warns and lets it go on with what is there."""

    fails: bool

    def report(self, what: str) -> None:
        if self.fails:
            raise QueryFailed(f"{REASON}. {what}. {REMEDY}.")
        logger.warning("%s. %s. The query goes on, because failOnDataLoss is false.", REASON, what)
