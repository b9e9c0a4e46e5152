"""A certificate of its own for a proxy on 127.0.0.1, for a day. Who trusts no other shows that it was asked for.

with certificate() as signed:
    S3Proxy(…, signed)                       speaks TLS
    AWS_CA_BUNDLE=signed.file                the certificate is its own authority
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM form."""

    file: Path
    key_file: Path


@contextmanager
def certificate() -> Iterator[Certificate]:
    """A new one, gone with the block."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "deltacompact benchmarks")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    with TemporaryDirectory() as folder:
        found = Certificate(Path(folder, "certificate.pem"), Path(folder, "key.pem"))
        found.file.write_bytes(signed.public_bytes(pem))
        found.key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
        yield found
