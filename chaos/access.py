"""Access: how clients reach the cluster of a run. Each library gets the addresses and the login in its own words."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moldau.client.direct.security import PLAINTEXT, Security, Tls
from moldau.security.sasl_client import Sasl

MECHANISM = "SCRAM-SHA-512"
PROTOCOL = "SASL_SSL"
JAVA_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class Login:
    """A user of a cluster with SASL_SSL, and the authority of its certificates."""

    user: str
    password: str = field(repr=False)
    ca: Path

    @property
    def jaas(self) -> str:
        return f'{JAVA_MODULE} required username="{self.user}" password="{self.password}";'


@dataclass(frozen=True, slots=True)
class Access:
    """Without a login: PLAINTEXT."""

    bootstrap: str
    login: Login | None = None

    @property
    def librdkafka(self) -> dict[str, Any]:
        settings = {"bootstrap.servers": self.bootstrap}
        if self.login is not None:
            settings |= {"security.protocol": PROTOCOL, "ssl.ca.location": str(self.login.ca)}
            settings |= {"sasl.mechanism": MECHANISM}
            settings |= {"sasl.username": self.login.user, "sasl.password": self.login.password}
        return settings

    @property
    def kafka_python(self) -> dict[str, Any]:
        if self.login is None:
            return self._of_python()
        return self._of_python() | {"ssl_cafile": str(self.login.ca)}

    @property
    def aiokafka(self) -> dict[str, Any]:
        if self.login is None:
            return self._of_python()
        return self._of_python() | {"ssl_context": ssl.create_default_context(cafile=str(self.login.ca))}

    @property
    def java(self) -> dict[str, str]:
        """Java takes the addresses as an argument."""
        if self.login is None:
            return {}
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.login.ca)}
        login = {"sasl.mechanism": MECHANISM, "sasl.jaas.config": self.login.jaas}
        return {"security.protocol": PROTOCOL, **trust, **login}

    @property
    def go(self) -> dict[str, str]:
        """Environment variables of tests/clients/go."""
        if self.login is None:
            return {}
        words = f"{MECHANISM} {self.login.user} {self.login.password}"
        return {"CLIENT_CA": str(self.login.ca), "CLIENT_SASL": words}

    @property
    def direct(self) -> Security:
        if self.login is None:
            return PLAINTEXT
        return Security(Tls(ca=str(self.login.ca)), Sasl(MECHANISM, self.login.user, self.login.password))

    def _of_python(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap_servers": self.bootstrap.split(",")}
        if self.login is not None:
            settings |= {"security_protocol": PROTOCOL, "sasl_mechanism": MECHANISM}
            settings |= {"sasl_plain_username": self.login.user, "sasl_plain_password": self.login.password}
        return settings
