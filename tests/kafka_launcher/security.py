"""Brokers that require TLS and a password: the brokers' certificate, which signs itself, and one user."""

import subprocess
from pathlib import Path
from typing import Final

from tests.kafka_launcher.jars import LauncherError, tool
from tests.kafka_launcher.node import Door

#: Name of the secured listener; the plain one stays for traffic between nodes.
LISTENER: Final = "SECURED"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SCRAM: Final = MECHANISMS[1:]
_MAKE: Final = (
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=broker "
    "-addext subjectAltName=IP:127.0.0.1"
)
_LOGIN: Final = "org.apache.kafka.common.security"


class BrokerSecurity:
    """TLS and user settings of a cluster's brokers, created in `directory` at the first start.

    Clients use `user` and `password`, words without spaces or quotes, with any of the MECHANISMS; or OAUTHBEARER, with
    unsigned tokens.
    """

    def __init__(self, directory: Path, user: str, password: str) -> None:
        self._store = directory.absolute() / "broker.pem"
        self.user = user
        self.password = password
        #: Certificate that signed the brokers' certificate, PEM.
        self.authority = self._store.with_name("authority.pem")

    def make(self) -> None:
        """Create key and certificate, unless they exist.

        Raises:
            LauncherError: No openssl, or it fails.
        """
        if self._store.exists():
            return
        self.authority.parent.mkdir(parents=True, exist_ok=True)
        key = self.authority.with_name("key.pem")
        command = [tool("openssl", "openssl"), *_MAKE.split(), "-keyout", str(key), "-out", str(self.authority)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise LauncherError(f"openssl could not make the brokers' certificate: {done.stderr.strip()}")
        self._store.write_bytes(key.read_bytes() + self.authority.read_bytes())

    def door(self, port: int) -> Door:
        """Return a node's listener with TLS and authentication."""
        return Door(port, port, LISTENER, "SASL_SSL")

    def settings(self) -> dict[str, object]:
        plain = f'{_LOGIN}.plain.PlainLoginModule required user_{self.user}="{self.password}";'
        prefix = f"listener.name.{LISTENER.lower()}"
        return {
            "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
            # Without further settings, brokers accept unsigned tokens.
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
            f"{prefix}.plain.sasl.jaas.config": plain,
            **{f"{prefix}.{m.lower()}.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;" for m in _SCRAM},
            f"{prefix}.ssl.keystore.type": "PEM",
            f"{prefix}.ssl.keystore.location": self._store,
        }

    def format_options(self) -> list[str]:
        """Return the options to format a node that knows the user."""
        users = [f"{mechanism}=[name={self.user},password={self.password}]" for mechanism in _SCRAM]
        return [part for user in users for part in ("--add-scram", user)]
