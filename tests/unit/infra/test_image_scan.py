"""A secret is found in whatever layer of an image it is, and what only looks like one is not."""

import gzip
import io
import json
import tarfile
from collections.abc import Mapping

import pytest

from infra.images.scan import findings

BASE64 = b"MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"
PRIVATE_KEY = b"-----BEGIN %sPRIVATE KEY-----\n" + BASE64 + b"\n"


def archive(files: Mapping[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return written.getvalue()


def found(*layers: Mapping[str, bytes], env: tuple[str, ...] = (), made_by: str = "", known: str = "") -> list[str]:
    """In an image of these layers."""
    description = {"config": {"Env": ["PATH=/usr/bin", *env]}, "history": [{"created_by": made_by}]}
    parts = {f"{number}/layer.tar": archive(layer) for number, layer in enumerate(layers)}
    saved = archive({"0/VERSION": b"1.0", **parts, "image.json": json.dumps(description).encode()})
    return list(findings(io.BytesIO(saved), known.split()))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (PRIVATE_KEY % b"", "a private key"),
        (PRIVATE_KEY % b"RSA ", "a private key"),
        (PRIVATE_KEY % b"OPENSSH ", "a private key"),
        (b"id = AKIA" + b"Q" * 16, "a key of AWS"),
        (b"ghp_" + b"a1" * 18, "a token of GitHub"),
        (b"github_pat_" + b"a1" * 30, "a token of GitHub"),
        (b"glpat-" + b"a1" * 10, "a token of GitLab"),
        (b"hf_" + b"aB" * 17, "a token of Hugging Face"),
        (b"pypi-AgEI" + b"a1" * 25, "a token of PyPI"),
        (b"npm_" + b"a1" * 18, "a token of npm"),
        (b"xoxb-12345678901-" + b"a1" * 12, "a token of Slack"),
        (b"sk-proj-" + b"a1" * 20, "a key of OpenAI or Anthropic"),
    ],
)
def test_a_secret_that_shows_what_it_is_is_found_in_any_file(content: bytes, what: str) -> None:
    assert found({"opt/any/file.bin": b"\x00\x01 " + content + b"\n"}) == [f"/opt/any/file.bin: {what}"]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"url = https://me:my-word@packages.example/simple\n", "a password in an address"),
        (b"url = redis://:my-word@redis:6379\n", "a password in an address"),
        (b"[global]\nindex-url = https://packages.example/simple\n", "a registry of the machine that built it"),
        (b"extra_index_url=https://packages.example/simple\n", "a registry of the machine that built it"),
        (b"export https_proxy=proxy.example:3128\n", "a proxy of the machine that built it"),
        (b"db_password = my-word\n", "a password, a token or a key"),
        (b"api_key: my-word\n", "a password, a token or a key"),
    ],
)
def test_what_is_set_for_the_machine_is_found_where_settings_are(content: bytes, what: str) -> None:
    assert found({"etc/some.conf": content}) == [f"/etc/some.conf: {what}"]
    assert found({"opt/headway/lib/some.py": content}) == [], "in a program these are examples"


@pytest.mark.parametrize("name", ["root/.netrc", "var/lib/headway/.pypirc", "home/me/.ssh/id_ed25519"])
def test_a_file_that_is_nothing_but_a_secret_is_found_by_its_name(name: str) -> None:
    assert found({name: b"\x00"}) == [f"/{name}: by its name, nothing but a secret"]


def test_a_file_that_a_later_layer_takes_away_is_still_in_the_image() -> None:
    assert found({"root/key": PRIVATE_KEY % b""}, {"root/.wh.key": b""}) == ["/root/key: a private key"]


def test_a_compressed_layer_is_read_too() -> None:
    layer = gzip.compress(archive({"root/key": PRIVATE_KEY % b""}))
    saved = io.BytesIO(archive({"blobs/sha256/0": layer, "index.json": b"{}"}))
    assert list(findings(saved)) == ["/root/key: a private key"]


@pytest.mark.parametrize("env", ["REDIS_PASSWORD=my-word", "HF_TOKEN=my-word", "X_API_KEY=my-word"])
def test_a_secret_among_the_variables_is_found(env: str) -> None:
    assert found(env=(env,)) == ["the image's description: a password, a token or a key"]


def test_a_secret_in_a_command_that_made_the_image_is_found() -> None:
    command = "RUN |1 TOKEN=my-word pip install --index-url=https://packages.example/simple some"
    assert found(made_by=command) == [
        "the image's description: a registry of the machine that built it",
        "the image's description: a password, a token or a key",
    ]


def test_a_secret_that_is_known_is_found_wherever_it_is() -> None:
    layer = {"opt/any": b"...5f2c+9...", "opt/other": b"...5f2cc9..."}
    assert found(layer, env=("HARMLESS=77aa",), known="5f2c+9 77aa") == [
        "/opt/any: a secret of this plane",
        "the image's description: a secret of this plane",
    ]


def test_what_only_looks_like_a_secret_is_not_one() -> None:
    harmless = {
        "etc/nsswitch.conf": b"passwd: files\n",
        "etc/ssl/openssl.cnf": b"challengePassword = A challenge password\nsecret = pass:insta\n",
        "etc/headway/models.yaml": b"max_tokens: 100\nkey: $API_KEY\napi_key: $API_KEY\n",
        "opt/headway/lib/pem.py": b"if text.startswith('-----BEGIN PRIVATE KEY-----'):\n",
        "etc/apt/sources.list": b"deb http://deb.debian.org/debian trixie main\n",
    }
    assert found(harmless, env=("KAFKA_PASSWORD_FILE=/run/secrets/kafka", "HOST=redis:6379")) == []


def test_what_is_no_image_is_an_error() -> None:
    with pytest.raises(tarfile.TarError):
        list(findings(io.BytesIO(b"Error response from daemon")))
