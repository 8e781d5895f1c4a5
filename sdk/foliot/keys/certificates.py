"""A certificate authority of the fleet's own, and the bus's server certificate."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CA_DAYS = 3_650
_SERVER_DAYS = 825
"""Days for which a server's certificate holds: the most that clients commonly accept."""
_RENEWED = dt.timedelta(days=30)
"""How long before its end a certificate is renewed: time enough where the server starts only now and then."""
_EARLIER = dt.timedelta(hours=1)
"""How long before now a certificate begins. Clocks that check it may be behind: the bus is there to set them right."""


class Certificate(NamedTuple):
    """PEM texts."""

    certificate: bytes
    key: bytes
    """Secret."""


def authority(now: dt.datetime) -> Certificate:
    """A new authority, for ten years."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder("Foliot bus authority", "Foliot bus authority", key.public_key(), now, _CA_DAYS)
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    signed = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(signed, key)


def server(issuer: Certificate, hosts: tuple[str, ...], now: dt.datetime) -> Certificate:
    """A certificate for a server that clients reach under these names and addresses; renew it within two years."""
    authority_key = serialization.load_pem_private_key(issuer.key, None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    authority_certificate = x509.load_pem_x509_certificate(issuer.certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_name = authority_certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    builder = _builder(hosts[0], str(issuer_name), key.public_key(), now, _SERVER_DAYS)
    signed = (
        builder.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            # Members of a cluster are one another's clients.
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return _pem(signed, key)


def serves(certificate: bytes, hosts: tuple[str, ...], now: dt.datetime) -> bool:
    """Whether a server's certificate is for these names and addresses and no others, and holds for a while."""
    found = x509.load_pem_x509_certificate(certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(names) == {_name(host) for host in hosts} and now < found.not_valid_after_utc - _RENEWED


def _builder(
    name: str, issuer: str, public_key: ec.EllipticCurvePublicKey, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _name(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certificate:
    return Certificate(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
