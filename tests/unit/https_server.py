"""A real HTTPS server on the loopback, under a CA of its own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

JWKS = b'{"keys": []}'

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(content: bytes, status: str = "200 OK", *headers: str) -> Answer:
    async def write(writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Connection: close", *headers, "", ""]
        writer.write("\r\n".join(head).encode() + content)
        await writer.drain()

    return write


class Server:
    """An HTTPS server that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.answer: Answer = answer(JWKS)
        self.port = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            named = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
            length = int(named.get(b"content-length", b"0"))
            self.asked.append(head + await reader.readexactly(length))
            await self.answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()


def contexts(folder: Path, hosts: Sequence[str]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS of a server that is all these hosts, and of whoever believes its CA."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Test CA")])

    def certificate(name: x509.Name, public: Any, extensions: list[x509.ExtensionType]) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.now(UTC) - timedelta(days=1))
            .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(ca_key, hashes.SHA256())

    ca = certificate(
        ca_name,
        ca_key.public_key(),
        [
            x509.BasicConstraints(ca=True, path_length=None),
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()),
        ],
    )
    leaf = certificate(
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hosts[0])]),
        key.public_key(),
        [
            x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
        ],
    )
    (folder / "leaf.pem").write_bytes(
        leaf.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "leaf.pem")
    return serving, ssl.create_default_context(cadata=ca.public_bytes(Encoding.PEM).decode())
