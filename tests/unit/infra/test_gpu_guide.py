"""docs/gpu.md: what a reader copies from it works."""

import json
import re
import shlex
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from headway.cli.app import app
from schemas.metrics import METRICS
from schemas.models import ModelsFile, VllmEngine
from services.chassis.config.folder import load_folder
from tests.unit.infra.composed import ROOT, composed, read
from tests.unit.infra.guide import commands, files

GUIDE = ROOT / "docs" / "gpu.md"
TEXT = GUIDE.read_text(encoding="utf-8")
COMMANDS = [shlex.split(command) for command in commands(GUIDE)]


def a_command_of_ours(words: list[str]) -> None:
    """Raises click's UsageError for a command or an option that there is not."""
    command, rest = get_command(app), words
    while isinstance(command, TyperGroup):
        context = command.make_context(None, [], resilient_parsing=True)
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
    command.make_context(None, rest)
    if "--input" in rest:
        json.loads(rest[rest.index("--input") + 1])


def compose(words: list[str]) -> None:
    overlays = [file for file in options(words, "-f") if file != "docker-compose.yml"]
    services = composed(*overlays)["services"]
    if "exec" in words:
        service, program, *rest = words[words.index("exec") + 1 :]
        assert (service in services, program) == (True, "headway")
        a_command_of_ours(rest)
    else:
        assert words[words.index("up") :] == ["up", "-d", "--build", "--wait"]


def kubectl(words: list[str]) -> None:
    assert words[0] == "apply"
    assert (ROOT / options(words, "-k")[0] / "kustomization.yaml").exists()


def make(words: list[str]) -> None:
    assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def pip(words: list[str]) -> None:
    """It installs an extra of the clone."""
    assert words[:2] == ["install", "-e"]
    (extra,) = re.fullmatch(r"\.\[(\w+)\]", words[2]).groups()  # type: ignore[union-attr]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extra in project["optional-dependencies"]


def python(words: list[str]) -> None:
    """A module of ours, for a folder that is there."""
    module, folder = words[1:]
    assert (ROOT / module.replace(".", "/") / "__main__.py").exists()
    assert (ROOT / folder).is_dir()


def vllm(words: list[str]) -> None:
    """It has only options that the overlays have as well."""
    known = {word.split("=")[0] for word in read("infra/compose.gpu.yml")["services"]["vllm"]["command"]}
    assert {word for word in words if word.startswith("--")} <= known


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "headway": a_command_of_ours,
    "docker": compose,
    "kubectl": kubectl,
    "make": make,
    "pip": pip,
    "python": python,
    "vllm": vllm,
    "export": lambda _: None,
}


def options(words: list[str], name: str) -> list[str]:
    return [value for option, value in pairwise(words) if option == name]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_is_one_that_there_is(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the reader is, with the folder that was written before."""
    (tmp_path / "my-config").mkdir()
    monkeypatch.chdir(tmp_path)
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    PROGRAMS[words[0]](words[1:])


def test_a_command_with_a_typo_would_be_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        a_command_of_ours(["models", "try", "llm", "--inptu", "{}"])


def test_the_configuration_can_be_used_at_every_stage(tmp_path: Path) -> None:
    """As it is after each file that the reader has written; before the first pipeline it is not whole."""
    stages = []
    for file in files(GUIDE):
        path = tmp_path / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
        if (tmp_path / "my-config" / "pipelines").exists() and file.name.startswith("my-config/"):
            stages.append(load_folder(tmp_path / "my-config"))
    assert len(stages) == 2
    for bundle, problems in stages:
        assert problems == []
        assert bundle is not None
        assert bundle.model_classes.keys() == {"llm"}


def test_every_other_model_class_is_one() -> None:
    others = [file for file in files(GUIDE) if file.name.endswith("/models.yaml") and "my-config" not in file.name]
    assert others
    for file in others:
        ModelsFile.model_validate(yaml.safe_load(file.text))


def test_what_it_names_is_there() -> None:
    exposed = {metric.name for metric in METRICS}
    assert set(re.findall(r"headway_\w+", TEXT)) <= exposed
    for path in re.findall(r"`(infra/[\w./-]+)`", TEXT):
        assert (ROOT / path).exists(), path
    for page, _, _ in (link.partition("#") for link in re.findall(r"\]\(([\w./-]+\.md[#\w-]*)\)", TEXT)):
        assert (GUIDE.parent / page).exists(), page


def test_the_links_within_lead_to_headings() -> None:
    headings = {
        re.sub(r"[^\w\s-]", "", line).strip().replace(" ", "-").lower()
        for line in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= headings


def test_the_shares_of_a_card_sum_up() -> None:
    """80 GB: vLLM's default share, as the overlays have it, and what is left."""
    utilization = next(
        word for word in read("infra/compose.gpu.yml")["services"]["vllm"]["command"] if "gpu-memory" in word
    )
    (row,) = re.findall(r"^\| vLLM, .*\| (\d+) \|$", TEXT, re.MULTILINE)
    assert int(row) == pytest.approx(80 * float(utilization.split("=")[1]))
    parts = [int(number) for number in re.findall(r"^\| [^|]*\| (?:up to )?(\d+) \|$", TEXT, re.MULTILINE)]
    assert sum(parts) == 80


def test_a_class_with_the_engine_vllm_says_what_it_takes() -> None:
    for file in files(GUIDE):
        for model_class in (yaml.safe_load(file.text).get("model_classes") or {}).values():
            if "vllm" in str(model_class):
                (backend,) = (
                    ModelsFile.model_validate({"model_classes": {"x": model_class}}).model_classes["x"].backends
                )
                assert isinstance(backend.engine, VllmEngine)
                assert model_class["resources"]["gpu"] == 1
