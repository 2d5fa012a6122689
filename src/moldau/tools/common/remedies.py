"""Failures of the admin library as failures of a command: with the command or option that helps."""

from moldau.client.admin import errors
from moldau.client.admin.errors import AdminError
from moldau.tools.common.failure import FAILED, MISUSED, CommandError
from moldau.tools.common.hints import suggest

# By Kafka's name of the error, or librdkafka's.
REFUSALS = {
    "TOPIC_ALREADY_EXISTS": "Add --if-not-exists to accept that",
    "TOPIC_EXCEPTION": "A name has up to 249 letters, digits, dots, underscores and hyphens",
    "INVALID_CONFIG": "Topic settings have Kafka's names, such as retention.ms or cleanup.policy",
    "MSG_SIZE_TOO_LARGE": "Raise the topic's max.message.bytes, and message.max.bytes with -X",
    "SECURITY_DISABLED": "Set authorizer.class.name and super.users on the brokers",
    "CLUSTER_AUTHORIZATION_FAILED": "Log in as a super user, or as one with rights on the cluster",
    "AUTHENTICATION": "Check the SASL settings given with -X",
    "SSL": "Check the TLS settings given with -X",
    "INVALID_ARG": "Check the -X properties and the command's options",
}


def command_error(error: AdminError) -> CommandError:
    """The failure with its remedy and exit code."""
    code = MISUSED if isinstance(error, errors.InvalidArgument) else FAILED
    return CommandError(str(error), remedy=_remedy(error), exit_code=code)


def _remedy(error: AdminError) -> str:
    match error:
        case errors.Unreachable():
            return _connect_remedy(error)
        case errors.LoginFailed():
            return "Check sasl.mechanism, sasl.username and sasl.password"
        case errors.Refused():
            return REFUSALS.get(error.name, "")
        case errors.InvalidAddress():
            return "Give --bootstrap as HOST:PORT"
        case errors.InvalidProperty():
            return "Check the -X properties and the command's options"
        case errors.NoSuchBroker():
            return f"There are: {', '.join(map(str, error.known))}"
        case errors.BrokerCordoned():
            return f"To keep it in the cluster: {suggest(f'cluster decommission {error.broker} --cancel')}"
        case errors.ImpossibleAssignment():
            return f"Add a broker first, or reduce the replicas: {suggest('partition replicate --help')}"
        case errors.OffsetOutOfRange():
            return "Choose partitions with -p, or another --from"
    return _lookup_remedy(error)


def _connect_remedy(error: errors.Unreachable) -> str:
    match error:
        case errors.AdvertisedUnreachable():
            return f"Set advertised.listeners of broker {error.broker} to an address that clients reach"
        case errors.TlsFailed():
            return ""  # it is in the error
        case errors.NotTls():
            return (
                f"Leave out -X security.protocol={error.protocol}, or name the broker's TLS listener with --bootstrap"
            )
        case errors.ProtocolMismatch():
            return f"Give its security settings with -X, such as -X security.protocol={error.wanted or 'ssl'}"
    return "Is it running? Start one with: moldau up"


def _lookup_remedy(error: AdminError) -> str:
    """The command that lists what exists."""
    match error:
        case errors.NoSuchTopic():
            listing, creation = suggest("topic list"), suggest(f"topic create {error.topic}")
            return f"List topics with: {listing}; create it with: {creation}"
        case errors.NoSuchPartition() | errors.NoLeader():
            return f"See its partitions with: {suggest(f'topic describe {error.topic}')}"
        case errors.NoSuchGroup():
            return f"List groups with: {suggest('group list')}"
        case errors.GroupNotEmpty() | errors.GroupSubscribed():
            return f"Stop its consumers first; see them with: {suggest(f'group describe {error.group}')}"
        case errors.NothingToShift():
            return "Choose partitions with --topic NAME:P,…, or another option than --shift-by"
        case errors.NothingCommitted():
            return f"See its offsets with: {suggest(f'group describe {error.group}')}"
        case errors.NoPassword():
            return "Type one, or give --password-file FILE"
        case errors.BrokerHasRun():
            return "Start it, and leave out --dir"
        case errors.NoSuchUser():
            return f"List users with: {suggest('user list')}"
        case errors.NoSuchToken():
            return f"List tokens with: {suggest('token list')}"
        case errors.NoSuchOrganisation():
            return f"List organisations with: {suggest('org list')}"
        case errors.NoSuchProduct():
            return f"List products with: {suggest(f'product list {error.organisation}')}"
        case errors.NoSuchRole():
            return f"See roles with: {suggest(f'org describe {error.organisation}')}"
        case errors.NoSuchTransactionalId():
            return f"List them with: {suggest('txn list')}"
        case errors.NoSuchTransaction():
            topic, partition = error.partition
            return f"See the open ones with: {suggest(f'txn producers {topic} -p {partition}')}"
    return ""
