"""Failures of the admin library as a command tells them."""

import pytest

from moldau.base.ids import TopicPartition
from moldau.client.admin import errors
from moldau.client.admin.errors import AdminError
from moldau.tools.common.hints import remember
from moldau.tools.common.remedies import command_error


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (errors.InvalidAddress("x"), 2, "--bootstrap"),
        (errors.Unreachable("h:1", "refused"), 1, "moldau up"),
        (errors.AdvertisedUnreachable("h:2", "refused", "h:1", 3), 1, "advertised.listeners of broker 3"),
        (errors.NotTls("h:1", "no TLS", "ssl"), 1, "Leave out -X security.protocol=ssl"),
        (errors.TlsFailed("h:1", "shows a certificate that has expired: renew it"), 1, "renew it"),
        (errors.LoginFailed("h:1: invalid credentials"), 1, "sasl.password"),
        (errors.ProtocolMismatch("h:1", "closed", "ssl", "sasl_ssl"), 1, "-X security.protocol=sasl_ssl"),
        (errors.ProtocolMismatch("h:1", "closed", "plaintext"), 1, "-X security.protocol=ssl"),
        (errors.Refused("TOPIC_ALREADY_EXISTS", "exists"), 1, "--if-not-exists"),
        (errors.NoSuchTopic("t"), 1, "moldau topic create t -b h:9"),
        (errors.NoSuchPartition("t", 7, 2), 1, "moldau topic describe t -b h:9"),
        (errors.NoSuchGroup("g"), 1, "moldau group list -b h:9"),
        (errors.GroupNotEmpty("g", 2, "Stable"), 1, "moldau group describe g -b h:9"),
        (errors.NothingToShift("g", "t-0"), 1, "--shift-by"),
        (errors.NothingCommitted("g"), 1, "moldau group describe g -b h:9"),
        (errors.NoSuchBroker(7, [1, 2]), 1, "There are: 1, 2"),
        (errors.BrokerCordoned(3), 1, "cluster decommission 3 --cancel"),
        (errors.NoSuchTransaction(TopicPartition("t", 1), 5), 1, "moldau txn producers t -p 1 -b h:9"),
    ],
)
def test_every_failure_says_how_to_go_on(error: AdminError, code: int, words: str) -> None:
    remember([], ["-b", "h:9"])
    try:
        told = command_error(error)
    finally:
        remember([], [])
    assert told.exit_code == code
    assert str(told).startswith(str(error))
    assert words in str(told)
