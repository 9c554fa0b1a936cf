"""Brokers that require TLS and a password: a certificate authority, the brokers' certificate, and one user."""

import subprocess
from pathlib import Path
from typing import Final

from tests.kafka_launcher import jars
from tests.kafka_launcher.jars import LauncherError
from tests.kafka_launcher.node import Door

#: Name of the secured listener; the plain one stays for traffic between nodes.
LISTENER: Final = "SECURED"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SCRAM: Final = MECHANISMS[1:]
_LOGIN: Final = "org.apache.kafka.common.security"


class BrokerSecurity:
    """TLS and user settings of a cluster's brokers, created in `directory` at the first start.

    Clients use `user` and `password` with any of the MECHANISMS. Both are words without spaces or quotes; the password
    has at least six characters.
    """

    def __init__(self, directory: Path, user: str, password: str) -> None:
        self._store = directory.absolute() / "broker.p12"
        self.user = user
        self.password = password
        #: Certificate of the authority that signed the brokers' certificate, PEM.
        self.authority = self._store.with_name("authority.pem")

    def make(self) -> None:
        """Create authority and certificate with Java's keytool, unless they exist.

        Raises:
            LauncherError: No keytool, or it fails.
        """
        if self.authority.exists():
            return
        self._store.parent.mkdir(parents=True, exist_ok=True)
        self._store.unlink(missing_ok=True)
        key = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650")
        self._keytool(
            "-genkeypair", *key, "-alias", "ca", "-dname", "CN=ca", "-ext", "bc:c", "-ext", "ku:c=keyCertSign"
        )
        names = "san=ip:127.0.0.1"
        self._keytool("-genkeypair", *key, "-alias", "broker", "-dname", "CN=broker", "-signer", "ca", "-ext", names)
        made = self._store.with_name("authority.new")
        self._keytool("-exportcert", "-rfc", "-alias", "ca", "-file", str(made))
        # A broker would use the first key that it finds.
        self._keytool("-delete", "-alias", "ca")
        made.rename(self.authority)

    def door(self, port: int) -> Door:
        """Return a node's listener with TLS and authentication."""
        return Door(port, port, LISTENER, "SASL_SSL")

    def settings(self) -> dict[str, object]:
        plain = f'{_LOGIN}.plain.PlainLoginModule required user_{self.user}="{self.password}";'
        prefix = f"listener.name.{LISTENER.lower()}"
        return {
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            f"{prefix}.plain.sasl.jaas.config": plain,
            **{f"{prefix}.{m.lower()}.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;" for m in _SCRAM},
            f"{prefix}.ssl.keystore.type": "PKCS12",
            f"{prefix}.ssl.keystore.location": self._store,
            f"{prefix}.ssl.keystore.password": self.password,
        }

    def format_options(self) -> list[str]:
        """Return the options to format a node that knows the user."""
        users = [f"{mechanism}=[name={self.user},password={self.password}]" for mechanism in _SCRAM]
        return [part for user in users for part in ("--add-scram", user)]

    def _keytool(self, *arguments: str) -> None:
        tool = jars.tool("keytool", "default-jre-headless")
        store = ("-keystore", str(self._store), "-storetype", "PKCS12", "-storepass", self.password)
        done = subprocess.run([tool, *arguments, *store], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise LauncherError(
                f"keytool could not make the brokers' certificate: {(done.stdout + done.stderr).strip()}"
            )
