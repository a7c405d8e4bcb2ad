"""A small certificate authority of the fleet's own: a certificate for each agent, which both ends of a link show.

The name in a certificate is the agent's, with the run's: who has one of another run is a stranger.
"""

import datetime
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.errors import UserError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

KEY, CERTIFICATE, AUTHORITY = "key.pem", "certificate.pem", "authority.pem"
DAYS = 90  # for which the certificate of an agent holds
YEARS = 10  # for which that of the authority does
EARLY = datetime.timedelta(hours=1)  # clocks of hosts differ


def common_name(run: str, agent: int) -> str:
    """Who an agent is, in its certificate and in what neighbours allow."""
    return f"agent-{agent}.{run}.shoal"


def needed() -> None:
    """Raise if the extra is not installed."""
    try:
        import cryptography  # noqa: F401
        import zenoh  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"a live fleet needs the extra `live`, and {error.name} is not there; pip install 'shoal[live]'"
        ) from None


def found(folder: Path, run: str) -> None:
    """Make an authority in a folder: its key, which stays there, and its certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = named(f"authority.{run}.shoal")
    key_usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    made = (
        dated(name, name, key.public_key(), datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    write(folder, key, made)


def certify(authority: Path, folder: Path, run: str, agent: int, host: str, days: float = DAYS) -> None:
    """Give an agent a key and a certificate for so many days, at the name or address of its host."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        signer = serialization.load_pem_private_key((authority / KEY).read_bytes(), None)
        issuer = x509.load_pem_x509_certificate((authority / CERTIFICATE).read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read the authority in {authority}: {error}; it is where `shoal live init` has made it"
        ) from None
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    who = common_name(run, agent)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    made = (
        dated(named(who), issuer.subject, key.public_key(), datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(who), at_host(host)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(signer, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    write(folder, key, made)
    (folder / AUTHORITY).write_bytes((authority / CERTIFICATE).read_bytes())


def named(name: str) -> "x509.Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def dated(
    subject: "x509.Name", issuer: "x509.Name", public: object, span: datetime.timedelta
) -> "x509.CertificateBuilder":
    """A certificate that holds from now on for some time."""
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)  # type: ignore[arg-type]
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - max(EARLY, -2 * span))
        .not_valid_after(now + span)
    )


def at_host(host: str) -> "x509.GeneralName":
    """A host by its address or name."""
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def write(folder: Path, key: "EllipticCurvePrivateKey", certificate: "Certificate") -> None:
    """A key, which its owner alone can read from the moment it is there, and its certificate."""
    from cryptography.hazmat.primitives import serialization

    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / KEY).unlink(missing_ok=True)
    with os.fdopen(os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    (folder / CERTIFICATE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def guarded(folder: Path) -> datetime.datetime:
    """Raise unless the key of an agent is there, read by its owner alone, and belongs to a certificate that holds now.
    Returns until when it does."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    again = "get the agent's folder anew with `shoal live renew`"
    for name in (KEY, CERTIFICATE, AUTHORITY):
        if not (folder / name).is_file():
            raise UserError(f"{folder / name} is missing; {again}")
    mode = (folder / KEY).stat().st_mode & 0o777
    if mode & 0o077:
        raise UserError(
            f"{folder / KEY} can be read by others (mode {mode:o}); say `chmod 600 {folder / KEY}`, and if others use "
            "this host, give the agent a new one with `shoal live renew`"
        )
    try:
        key = serialization.load_pem_private_key((folder / KEY).read_bytes(), None)
        own = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the key or the certificate in {folder}: {error}; {again}") from None
    if key.public_key() != own.public_key():
        raise UserError(f"{folder / KEY} is not the key of {folder / CERTIFICATE}; {again}")
    now = datetime.datetime.now(datetime.UTC)
    if now > own.not_valid_after_utc:
        raise UserError(f"the certificate in {folder} has expired on {own.not_valid_after_utc:%Y-%m-%d}; {again}")
    if now < own.not_valid_before_utc:
        raise UserError(
            f"the certificate in {folder} holds from {own.not_valid_before_utc:%Y-%m-%d} on, and the clock here "
            f"says {now:%Y-%m-%d}; set the clock"
        )
    return own.not_valid_after_utc
