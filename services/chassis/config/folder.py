"""A configuration folder: `models.yaml`, `pipelines/*.yaml` and perhaps `tenants.yaml`, checked as a whole."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.base import Json, Name
from schemas.config import Bundle, Tenant
from schemas.models import ModelsFile
from schemas.pipelines import PipelineSpec
from services.chassis.config.checks import findings
from services.chassis.config.draft import Draft, DraftPipeline, mapping
from services.chassis.config.problems import Finding, Problem, dotted, has_errors
from services.chassis.config.shape import shape_findings
from services.chassis.config.yaml_source import Source, read_yaml

MODELS = "models.yaml"
PIPELINES = "pipelines"
TENANTS = "tenants.yaml"
MAX_PIPELINES = 1_000
MAX_BUNDLE_BYTES = 1_000_000
"""A bundle is published as one record."""


def load_folder(folder: Path) -> tuple[Bundle | None, list[Problem]]:
    """The configuration, unless there is an error in it, and everything that is wrong with it, by file and line."""
    if not folder.is_dir():
        return None, [Problem(str(folder), None, "there is no such folder", "`headway init DIR` makes one")]
    files = _Files(folder)
    found = {*files.unreadable, *files.misshapen(), *files.meaningless()}
    problems = sorted(found, key=lambda problem: (problem.file, problem.line or 0, problem.message))
    if has_errors(problems):
        return None, problems
    bundle = files.bundle()
    size = len(bundle.model_dump_json())
    if size > MAX_BUNDLE_BYTES:
        message = f"the configuration has {size:,} bytes; at most {MAX_BUNDLE_BYTES:,} fit into its record"
        return None, [*problems, Problem(str(folder), None, message, "remove pipelines that are no longer used")]
    return bundle, problems


def check_bundle(bundle: Bundle) -> list[Problem]:
    """What is wrong with a bundle that came without files, beyond its shape."""
    draft = Draft.of(bundle)
    return [_placed_in_bundle(finding, draft) for finding in findings(draft)]


def _placed_in_bundle(finding: Finding, draft: Draft) -> Problem:
    document, *path = finding.path
    label = str(document)
    if document == "pipelines":
        index, *path = path
        label = draft.pipelines[int(index)].label
    return Problem(label, None, finding.message, finding.hint, finding.severity, dotted(tuple(path)))


@dataclass(slots=True)
class _Files:
    """The files of a folder. What is not there, or cannot be read, has no value."""

    folder: Path
    models: Source = field(init=False)
    tenants: Source = field(init=False)
    pipelines: list[Source] = field(default_factory=list)
    unreadable: list[Problem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.models = self._read(MODELS)
        self.tenants = self._read(TENANTS) if (self.folder / TENANTS).exists() else Source(TENANTS)
        folder = self.folder / PIPELINES
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            name = f"{PIPELINES}/{path.name}"
            if path.suffix == ".yaml" and len(self.pipelines) <= MAX_PIPELINES:
                self.pipelines.append(self._read(name))
            elif path.suffix == ".yml":
                self._complain(name, "files that end in .yml are not read", f"name it {path.stem}.yaml")
        if not self.pipelines:
            self._complain(PIPELINES, "there is no pipeline", f"write one into {PIPELINES}/<name>.yaml")
        if len(self.pipelines) > MAX_PIPELINES:
            self._complain(PIPELINES, f"there are more than {MAX_PIPELINES:,} pipelines")

    def _read(self, name: str) -> Source:
        try:
            source = read_yaml(name, (self.folder / name).read_bytes())
        except OSError as error:
            source = Source(name, problems=[Problem(name, None, f"cannot be read: {error.strerror}")])
        if source.value is None and not source.problems and name != TENANTS:
            source.problems.append(Problem(name, 1, "the file is empty"))
        self.unreadable.extend(source.problems)
        return source

    def _complain(self, file: str, message: str, hint: str = "") -> None:
        self.unreadable.append(Problem(file, None, message, hint))

    def misshapen(self) -> Iterator[Problem]:
        """Where a file does not have the shape of its model."""
        documents: list[tuple[Source, Any]] = [(source, PipelineSpec) for source in self.pipelines]
        for source, kind in ((self.models, ModelsFile), (self.tenants, dict[Name, Tenant]), *documents):
            if source.value is not None:
                for finding in shape_findings(kind, source.value):
                    yield _placed(source, finding.path, finding)

    def meaningless(self) -> Iterator[Problem]:
        """Where the files as a whole make no sense."""
        for finding in findings(self._draft()):
            document, *path = finding.path
            if document == "pipelines":
                index, *path = path
                yield _placed(self.pipelines[int(index)], tuple(path), finding)
            elif document == "models":
                yield _placed(self.models, ("model_classes", *path), finding)
            else:
                yield _placed(self.tenants, tuple(path), finding)

    def _draft(self) -> Draft:
        classes = mapping(self.models.value).get("model_classes")
        return Draft(
            models=classes if isinstance(classes, dict) else None,
            pipelines=[DraftPipeline(source.file, mapping(source.value)) for source in self.pipelines],
            tenants=mapping(self.tenants.value),
            complete=not self.unreadable,
        )

    def bundle(self) -> Bundle:
        """Of files without an error."""
        written: dict[str, Json] = {
            "pipelines": [source.value for source in self.pipelines],
            "model_classes": mapping(self.models.value)["model_classes"],
            "tenants": mapping(self.tenants.value),
        }
        if spending := mapping(self.models.value).get("scaling"):
            written["scaling"] = spending
        return Bundle.model_validate(written)


def _placed(source: Source, path: tuple[str | int, ...], finding: Finding) -> Problem:
    line = source.line(path, finding.offset)
    return Problem(source.file, line, finding.message, finding.hint, finding.severity, dotted(path))
