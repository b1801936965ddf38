"""Certificate authority of a local cluster, and the server certificate that it signs. Both are in .cluster/tls.

A host that joins trusts only this authority. The authority's private key never leaves this folder.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.local import private_files
from jobs.settings import LOCAL_FOLDER

FOLDER = LOCAL_FOLDER / "tls"
#: Files of the server certificate and of its private key. The first file also contains the authority's certificate.
CERTIFICATE, KEY = FOLDER / "server.pem", FOLDER / "server.key"
_AUTHORITY, _AUTHORITY_KEY = FOLDER / "authority.pem", FOLDER / "authority.key"
_AUTHORITY_DAYS, _DAYS = 3650, 90
#: Remaining validity of a certificate at which it is renewed.
RENEWED_BEFORE = timedelta(days=30)
#: Time by which the start of a certificate is in the past. Machines with slow clocks then accept it.
_BACKDATED = timedelta(days=2)


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 fingerprint of a certificate (in DER encoding) in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def ensure() -> x509.Certificate:
    """Return the certificate of the authority. If the authority does not exist, create it."""
    with _hold_lock():
        return ensure_certificate()


def certify(names: Iterable[str]) -> None:
    """Add names and addresses to the server certificate. Renew it if it is invalid or expires soon."""
    with _hold_lock():
        _certify(set(names))


@contextmanager
def _hold_lock() -> Iterator[None]:
    """Lock the folder, because two processes that create keys could mix their files."""
    FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(FOLDER / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def ensure_certificate() -> x509.Certificate:
    if not (_AUTHORITY.is_file() and _AUTHORITY_KEY.is_file()):
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Threads Cluster authority")
        made = _certificate(name, name, key.public_key(), _AUTHORITY_DAYS)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        made = made.add_extension(_usage(signs=True), critical=True)
        private_files.write(_AUTHORITY_KEY, _private(key))
        private_files.write(_AUTHORITY, made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return x509.load_pem_x509_certificate(_AUTHORITY.read_bytes())


def _certify(wanted: set[str]) -> None:
    authority = ensure_certificate()
    known = list_names(authority)
    if wanted <= known and not _expires_soon(authority):
        return
    key = ec.generate_private_key(ec.SECP256R1())
    made = _certificate(_name("Threads Cluster coordinator"), authority.subject, key.public_key(), _DAYS)
    made = made.add_extension(
        x509.SubjectAlternativeName([_general_name(name) for name in sorted(wanted | known)]), critical=False
    )
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    made = made.add_extension(_usage(signs=False), critical=True)
    made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(_authority_key().public_key())
    made = made.add_extension(issuer, critical=False)
    signed = made.sign(_authority_key(), hashes.SHA256())
    chain = [one.public_bytes(serialization.Encoding.PEM) for one in (signed, authority)]
    private_files.write(KEY, _private(key))
    private_files.write(CERTIFICATE, b"".join(chain))


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        # Python 3.13 and later require this extension.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _current_certificate(authority: x509.Certificate) -> x509.Certificate | None:
    """Return the server certificate if it is valid and matches its key file. Otherwise, return None."""
    try:
        found = x509.load_pem_x509_certificate(CERTIFICATE.read_bytes())
        found.verify_directly_issued_by(authority)
        key = serialization.load_pem_private_key(KEY.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, InvalidSignature):
        return None
    counts = key.public_key() == found.public_key() and found.not_valid_before_utc <= datetime.now(UTC)
    return found if counts else None


def list_names(authority: x509.Certificate) -> set[str]:
    current = _current_certificate(authority)
    if current is None:
        return set()
    names = current.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in names}


def _expires_soon(authority: x509.Certificate) -> bool:
    current = _current_certificate(authority)
    return current is None or current.not_valid_after_utc < datetime.now(UTC) + RENEWED_BEFORE


def _authority_key() -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(_AUTHORITY_KEY.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
