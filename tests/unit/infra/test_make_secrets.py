"""The secrets of the secure overlay: all that it mounts, by one script, and nothing that is there is made anew."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.unit.infra.composed import ROOT, read


@pytest.fixture(scope="module")
def infra(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("infra")
    shutil.copy(ROOT / "infra/make-secrets.sh", folder)
    made(folder, "acme")
    return folder


def made(infra: Path, *tenants: str) -> dict[str, str]:
    subprocess.run([infra / "make-secrets.sh", *tenants], check=True, capture_output=True)
    files = (path for path in (infra / "secrets").rglob("*") if path.is_file())
    return {str(path.relative_to(infra / "secrets")): path.read_text(encoding="utf-8") for path in files}


def test_it_makes_every_file_that_the_overlay_mounts(infra: Path) -> None:
    for secret in read("infra/compose.secure.yml")["secrets"].values():
        assert (infra.parent / secret["file"].replace("./infra", infra.name)).stat().st_size


def test_containers_may_read_them_and_nobody_else_on_the_machine(infra: Path) -> None:
    assert (infra / "secrets").stat().st_mode & 0o077 == 0
    assert (infra / "secrets" / "ca.key").stat().st_mode & 0o077 == 0
    assert (infra / "secrets" / "kafka.pem").stat().st_mode & 0o004


def test_its_certificates_are_of_its_authority_for_the_container_and_this_machine(infra: Path) -> None:
    for host in ("kafka", "redis"):
        names = subprocess.check_output(
            ["openssl", "x509", "-in", infra / "secrets" / f"{host}.pem", "-noout", "-ext", "subjectAltName"],
            text=True,
        )
        assert f"DNS:{host}, DNS:localhost" in names
        strict = ["-x509_strict", "-purpose", "sslserver"]
        subprocess.run(
            ["openssl", "verify", *strict, "-CAfile", infra / "secrets/ca.pem", infra / f"secrets/{host}.pem"],
            check=True,
            capture_output=True,
        )
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(infra / f"secrets/{host}.pem")


def test_each_user_has_a_password_of_its_own(infra: Path) -> None:
    passwords = {path.name: path.read_text(encoding="utf-8") for path in (infra / "secrets/users").iterdir()}
    assert set(passwords) == {"headway", "client", "acme"}
    assert len(set(passwords.values())) == 3
    assert all(len(password) == 48 for password in passwords.values())


def test_again_it_makes_only_what_is_new(infra: Path) -> None:
    before = made(infra)
    after = made(infra, "globex")
    assert after.keys() - before.keys() == {"users/globex"}
    assert {name: after[name] for name in before} == before
