"""Looks for secrets in an image: `python -m infra.images.scan IMAGE [FILE]`. Exit code 1 if there is any.

Reads what `docker save` writes: every file of every layer, also one that a later layer takes away, and the image's
description, with its variables and the commands that made it. FILE has secrets that must not be there, one a line.
What is found is named, never shown.
"""

import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

WHOLE_FILES = {".dockercfg", ".git-credentials", ".netrc", ".pgpass", ".pypirc", "id_ecdsa", "id_ed25519", "id_rsa"}
"""Nothing but a secret is called so."""

EXAMPLES = {PurePosixPath("/etc/ssl/openssl.cnf")}
"""Settings that come with a package, and have passwords as examples."""

DESCRIPTION = "the image's description"


class Secret(NamedTuple):
    """What a kind of secret looks like. Begins with a fixed text: only so are gigabytes searched in seconds."""

    what: str
    pattern: re.Pattern[bytes]


ANYWHERE = (
    Secret("a private key", re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----\s+[\w+/]{40}")),
    Secret("a key of AWS", re.compile(rb"AKIA[A-Z2-7]{16}\b")),
    Secret("a token of GitHub", re.compile(rb"gh[oprsu]_[A-Za-z0-9]{36}\b")),
    Secret("a token of GitHub", re.compile(rb"github_pat_\w{60}")),
    Secret("a token of GitLab", re.compile(rb"glpat-[\w-]{20}\b")),
    Secret("a token of Hugging Face", re.compile(rb"hf_[A-Za-z]{34}\b")),
    Secret("a token of PyPI", re.compile(rb"pypi-AgEI[\w-]{50}")),
    Secret("a token of npm", re.compile(rb"npm_[A-Za-z0-9]{36}\b")),
    Secret("a token of Slack", re.compile(rb"xox[abprs]-\d{8,}-[\w-]{20}")),
    Secret("a key of OpenAI or Anthropic", re.compile(rb"sk-(?:proj-|ant-)[\w-]{30}")),
)
SETTINGS = (
    Secret("a password in an address", re.compile(rb"://[^\s/:@\"]*:[^\s/@\"$]+@")),
    Secret("a registry of the machine that built it", re.compile(rb"index[-_]url\s*=\s*\S", re.IGNORECASE)),
    Secret("a proxy of the machine that built it", re.compile(rb"_proxy\s*=\s*\S", re.IGNORECASE)),
)
"""In what sets things up: in the text of a program these are examples."""

NAMED = rb"(?:password|secret|token|api_?key)"
VARIABLES = Secret("a password, a token or a key", re.compile(NAMED + rb"=[^\s\"$]", re.IGNORECASE))
LINES = Secret(
    "a password, a token or a key",
    re.compile(rb"^[\w.-]*" + NAMED + rb"[ \t]*[:=][ \t]*[^\s#$]", re.IGNORECASE | re.MULTILINE),
)


def findings(saved: IO[bytes], known: Sequence[str] = ()) -> Iterator[str]:
    """A line for each secret in a saved image, with where it is. Raises tarfile.TarError on anything else."""
    anywhere = (
        *ANYWHERE,
        *(Secret("a secret of this plane", re.compile(re.escape(word.encode()))) for word in known),
    )
    with tarfile.open(fileobj=saved, mode="r|") as image:
        for part in filter(tarfile.TarInfo.isfile, image):
            content = _opened(image, part)
            if _is_text(content):
                yield from _within(DESCRIPTION, content.read(), (*anywhere, *SETTINGS, VARIABLES))
            else:
                yield from _of_layer(content, anywhere)


def _of_layer(layer: IO[bytes], anywhere: Sequence[Secret]) -> Iterator[str]:
    with tarfile.open(fileobj=layer, mode="r|*") as files:
        for file in filter(tarfile.TarInfo.isfile, files):
            path = PurePosixPath("/", file.name)
            if path.name in WHOLE_FILES:
                yield f"{path}: by its name, nothing but a secret"
            secrets = (*anywhere, *SETTINGS, LINES) if _sets_up(path) else anywhere
            yield from _within(str(path), _opened(files, file).read(), secrets)


def _within(where: str, content: bytes, secrets: Sequence[Secret]) -> Iterator[str]:
    for secret in secrets:
        if secret.pattern.search(content):
            yield f"{where}: {secret.what}"


def _sets_up(path: PurePosixPath) -> bool:
    """Files of people and machines, not those of packages."""
    folders = ("etc", "home", "root", "run", "src", "tmp")
    return (path.parts[1] in folders or path.suffix == ".env") and path not in EXAMPLES


def _is_text(content: IO[bytes]) -> bool:
    return cast("tarfile.ExFileObject", content).peek(1)[:1] in (b"{", b"[", b"1")


def _opened(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    return cast("IO[bytes]", archive.extractfile(member))


def main() -> int:
    """Prints what was found."""
    image, *files = sys.argv[1:]
    known = [word for file in files for word in Path(file).read_text(encoding="utf-8").split()]
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as docker:
        found = sorted(set(findings(cast("IO[bytes]", docker.stdout), known)))
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return int(bool(found)) or docker.returncode


if __name__ == "__main__":
    sys.exit(main())
