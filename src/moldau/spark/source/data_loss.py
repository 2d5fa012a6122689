"""`failOnDataLoss`: fail or warn when records were deleted before the query read them."""

import logging
from dataclasses import dataclass

from moldau.spark.cluster import QueryFailed

logger = logging.getLogger("moldau.spark")
REASON = "Some data may have been lost: records or their topic were deleted before the query read them"
REMEDY = "To continue without them, set the option failOnDataLoss to false"


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Fails the query, or logs a warning and lets it continue."""

    fails: bool

    def report(self, what: str) -> None:
        if self.fails:
            raise QueryFailed(f"{REASON}. {what}. {REMEDY}.")
        logger.warning("%s. %s. The query continues, because failOnDataLoss is false.", REASON, what)
