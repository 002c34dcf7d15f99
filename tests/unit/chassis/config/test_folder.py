"""A configuration folder is checked as a whole: every mistake at once, each with its file, its line and a hint."""

import errno
import shutil
from pathlib import Path

import pytest
import yaml

import headway.cli
from schemas.config import Bundle
from services.chassis.config import folder as folder_module
from services.chassis.config.folder import check_bundle, load_folder
from services.chassis.config.problems import Severity

BROKEN = Path(__file__).parent / "broken"
TEMPLATE = Path(headway.cli.__file__).parent / "init_template"
CIRCLE = "each reads the next, or has it in `after`: break the circle"

MISTAKES: list[tuple[str, int | None, str, str]] = [
    ("models.yaml", 4, "unknown key `replica_hour_used`", "did you mean `replica_hour_usd`?"),
    (
        "models.yaml", 5, "a lane too small: `interactive` of `embedding` has 2 partitions for 3 replicas",
        "give it 3 partitions or more, or lower `max_replicas`",
    ),
    ("models.yaml", 9, "`kind` cannot be `llamacp`", "did you mean `llamacpp`?"),
    ("models.yaml", 10, "`slots` must be a whole number", ""),
    ("models.yaml", 11, "unknown key `ranks`", "did you mean `rank`?"),
    ("models.yaml", 12, "`Tools` is not a name: lower-case letters, digits and dashes, at most 48", ""),
    ("models.yaml", 13, "`callable` is not a function: write it as `module:function`", ""),
    ("models.yaml", 16, "min_replicas 3 > max_replicas 2", ""),
    ("models.yaml", 19, "`error_rate` must be a number", ""),
    ("models.yaml", 20, "`engine` has no `kind`", ""),
    ("models.yaml", 21, "`batch` must hold keys and values", ""),
    ("models.yaml", 24, "a partition stands in two lanes, or twice in one: every lane needs its own", ""),
    ("pipelines/ask-again.yaml", 4, "steps wait for each other: one → three → two → one", CIRCLE),
    ("pipelines/ask-again.yaml", 12, "steps wait for each other: self → self", CIRCLE),
    (
        "pipelines/ask.yaml", 1, "pipeline `ask` version 2 is there twice",
        "the other is pipelines/ask-again.yaml; give this one another `version`",
    ),
    ("pipelines/ask.yaml", 3, "`priority` cannot be `urgent`", "known: `batch`, `interactive`, `standard`"),
    ("pipelines/ask.yaml", 4, "`deadline` must be less than or equal to 3600000 ms", ""),
    ("pipelines/ask.yaml", 7, "`required` must be of type array", ""),
    ("pipelines/ask.yaml", 9, "JSON Schema has no `minLenght`: it checks nothing", "did you mean `minLength`?"),
    ("pipelines/ask.yaml", 9, "`type` cannot be `strng`", "did you mean `string`?"),
    ("pipelines/ask.yaml", 10, "`([` is no regular expression: unterminated character set at position 1", ""),
    ("pipelines/ask.yaml", 11, "`#/$defs/person` refers to nothing", "write `#/$defs/<name>`"),
    (
        "pipelines/ask.yaml", 12, "`https://example.com/place.json` refers to another document",
        "put it under `$defs` and write `#/$defs/<name>`",
    ),
    ("pipelines/ask.yaml", 15, "unknown model class `clasifier`", "did you mean `classifier`?"),
    (
        "pipelines/ask.yaml", 17, "the timeout is below 15 s",
        "a worker's failover takes 10 s: give it 15s or more",
    ),
    ("pipelines/ask.yaml", 19, "a condition must be true or false; this is of type int", ""),
    ("pipelines/ask.yaml", 22, "the model class `embedding` has no backend `remote`", "known: `local`"),
    ("pipelines/ask.yaml", 24, "syntax error: the expression ends too early", ""),
    ("pipelines/ask.yaml", 24, "unknown step `gaurd`", "did you mean `steps.guard`?"),
    ("pipelines/ask.yaml", 26, "unknown model class `embeddings`", "did you mean `embedding`?"),
    ("pipelines/ask.yaml", 27, "the model class `embedding` has no backend `burst`", "known: `local`"),
    ("pipelines/ask.yaml", 28, "a fallback names one of `backend`, `model_class`, `value`", ""),
    ("pipelines/ask.yaml", 29, "`id` must be a text", ""),
    ("pipelines/ask.yaml", 31, "the step id `embed` is there twice", "every step needs an id of its own"),
    ("pipelines/ask.yaml", 33, "a condition is one expression and nothing else", 'write it as "${…}"'),
    (
        "pipelines/ask.yaml", 34, "unknown step `retreive`",
        "known: `9lives`, `both`, `embed`, `guard`, `in`, `phrase`, `safe`",
    ),
    ("pipelines/ask.yaml", 35, "unknown key `attempts`", "did you mean `max_attempts`?"),
    ("pipelines/ask.yaml", 42, "unknown step `emebd`", "did you mean `steps.embed`?"),
    ("pipelines/ask.yaml", 43, "`max_attempts` must be greater than or equal to 1", ""),
    ("pipelines/ask.yaml", 45, "a step cannot be named `in`", "expressions could not name it"),
    ("pipelines/ask.yaml", 46, "a step has exactly one of `model_class`, `gate`, `value`", ""),
    (
        "pipelines/ask.yaml", 49,
        "`id` is not an identifier: letters, digits and underscores, not first a digit, at most 64", "",
    ),
    ("pipelines/ask.yaml", 50, "`+` cannot take (int, string)", ""),
    (
        "pipelines/ask.yaml", 51,
        "not a duration: '5 minutes'; write a number and a unit, like 200ms, 30s, 5m, 1h", "",
    ),
    (
        "pipelines/ask.yaml", 52, "unknown step `answer`",
        "known: `steps.9lives`, `steps.both`, `steps.embed`, `steps.guard`, `steps.in`, `steps.phrase`, `steps.safe`",
    ),
    ("pipelines/ask.yaml", 53, "`objective` must be less than 1", ""),
    ("pipelines/ask.yml", None, "files that end in .yml are not read", "name it ask.yaml"),
    (
        "pipelines/at.yaml", 2, "not YAML: found character that cannot start any token",
        "put quotes around the value",
    ),
    (
        "pipelines/documents.yaml", 2, "not YAML: found another document",
        "a file holds one document: remove the `---`",
    ),
    ("pipelines/double.yaml", 3, "the key `name` stands twice", "it is in line 1 already"),
    ("pipelines/double.yaml", 4, "`1` is no text, but a key must be", "put quotes around it"),
    ("pipelines/double.yaml", 6, "the tag `!!python/object:os.system` is not supported", "remove it"),
    (
        "pipelines/double.yaml", 8, "`<<` is not supported",
        "write the keys out, or use an alias for a whole value",
    ),
    ("pipelines/double.yaml", 9, "a whole number that does not fit 64 bits", "put quotes around it"),
    ("pipelines/double.yaml", 10, "a number that is too large", ""),
    ("pipelines/empty.yaml", 1, "the file is empty", ""),
    (
        "pipelines/indent.yaml", 2, "not YAML: mapping values are not allowed in this context",
        "look at the indentation; a value that holds `: ` needs quotes",
    ),
    ("pipelines/latin.yaml", 2, "not UTF-8", "save the file with the encoding UTF-8"),
    ("pipelines/list.yaml", 1, "`the file` must hold keys and values", ""),
    ("pipelines/nul.yaml", 2, "a control character", "write it as an escape in double quotes"),
    ("pipelines/quote.yaml", 2, "a quote or bracket is not closed", ""),
    (
        "pipelines/syntax.yaml", 5, "not YAML: did not find expected ',' or '}'",
        'put quotes around the expression: "${…}"',
    ),
    (
        "pipelines/tabs.yaml", 3, "not YAML: found character that cannot start any token",
        "indent with spaces, not with tabs",
    ),
    ("tenants.yaml", 1, "`inference-events` is a topic of Headway's own", "name it inference-requests-<tenant>"),
    (
        "tenants.yaml", 1, "the ingress topic `inference-requests-acme` is there twice",
        "a topic tells one tenant",
    ),
    (
        "tenants.yaml", 4, "the ingress topic `inference-requests-acme` is there twice",
        "a topic tells one tenant",
    ),
    ("tenants.yaml", 5, "`ingress_topics` is not a topic: lower-case letters, digits, dots and dashes", ""),
    ("tenants.yaml", 6, "`inference-requests` is a topic of Headway's own", "name it inference-requests-<tenant>"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of one's own, with the configuration that `headway init` writes."""
    return Path(shutil.copytree(TEMPLATE, tmp_path / "config"))


def test_every_mistake_of_a_folder_is_found_at_once() -> None:
    bundle, problems = load_folder(BROKEN)
    assert bundle is None
    found = [(problem.file, problem.line, problem.message, problem.hint) for problem in problems]
    assert set(found) ^ set(MISTAKES) == set()
    assert len(found) == len(MISTAKES)


def test_a_problem_says_whether_it_matters_and_where_it_is() -> None:
    _, problems = load_folder(BROKEN)
    by_message = {problem.message: problem for problem in problems}
    assert by_message["the timeout is below 15 s"].severity is Severity.WARNING
    assert by_message["the timeout is below 15 s"].where == "steps[0].timeout"
    assert by_message["unknown step `gaurd`"].severity is Severity.ERROR
    assert by_message["unknown step `gaurd`"].where == "steps[2].input.texts[0]"
    assert str(by_message["unknown key `ranks`"]) == "models.yaml:11: unknown key `ranks` (did you mean `rank`?)"
    assert str(by_message["not UTF-8"]).startswith("pipelines/latin.yaml:2: not UTF-8")
    assert str(by_message["the file is empty"]) == "pipelines/empty.yaml:1: the file is empty"
    assert str(by_message["files that end in .yml are not read"]).startswith("pipelines/ask.yml: files")


def test_the_folder_that_init_writes_is_clean(folder: Path) -> None:
    bundle, problems = load_folder(folder)
    assert problems == []
    assert bundle is not None
    assert [spec.name for spec in bundle.pipelines] == ["hello"]
    assert set(bundle.model_classes) == {"greetings", "writer"}


def test_a_bundle_survives_its_record(folder: Path) -> None:
    (folder / "tenants.yaml").write_text("acme: {ingress_topics: [inference-requests-acme]}\n")
    bundle, _ = load_folder(folder)
    assert bundle is not None
    assert Bundle.model_validate_json(bundle.model_dump_json()) == bundle
    assert check_bundle(bundle) == []


def test_warnings_do_not_hinder(folder: Path) -> None:
    models = folder / "models.yaml"
    models.write_text(models.read_text() + "  idle:\n    backends: [{name: local, engine: {kind: simulated}}]\n")
    bundle, problems = load_folder(folder)
    assert bundle is not None
    (problem,) = problems
    assert problem.severity is Severity.WARNING
    assert problem.message == "no pipeline uses the model class `idle`"
    assert problem.line == len(models.read_text().splitlines()) - 1


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert [str(problem) for problem in load_folder(tmp_path / "nowhere")[1]] == [
        f"{tmp_path / 'nowhere'}: there is no such folder (`headway init DIR` makes one)"
    ]
    assert [str(problem) for problem in load_folder(tmp_path)[1]] == [
        "models.yaml: cannot be read: No such file or directory",
        "pipelines: there is no pipeline (write one into pipelines/<name>.yaml)",
    ]


def test_without_its_models_a_pipeline_is_checked_all_the_same(folder: Path) -> None:
    (folder / "models.yaml").write_text("model_classes: [\n")
    pipeline = folder / "pipelines" / "hello.yaml"
    pipeline.write_text(pipeline.read_text().replace("steps.greeting.text", "steps.greting.text"))
    messages = [problem.message for problem in load_folder(folder)[1]]
    assert "unknown step `greting`" in messages
    assert not any("unknown model class" in message for message in messages)


def test_an_empty_file_of_tenants_means_none(folder: Path) -> None:
    (folder / "tenants.yaml").write_text("# nobody yet\n")
    bundle, problems = load_folder(folder)
    assert problems == []
    assert bundle is not None
    assert bundle.tenants == {}


def test_a_file_that_cannot_be_read_is_a_problem(folder: Path) -> None:
    (folder / "pipelines" / "hello.yaml").unlink()
    (folder / "pipelines" / "hello.yaml").mkdir()
    (problem,) = load_folder(folder)[1]
    assert (problem.file, problem.line) == ("pipelines/hello.yaml", None)
    assert problem.message == f"cannot be read: {OSError(errno.EISDIR, 'Is a directory').strerror}"


def test_too_many_pipelines_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "MAX_PIPELINES", 1)
    hello = (folder / "pipelines" / "hello.yaml").read_text()
    for number in range(3):
        (folder / "pipelines" / f"p{number}.yaml").write_text(hello.replace("name: hello", f"name: p{number}"))
    assert [problem.message for problem in load_folder(folder)[1]] == ["there are more than 1 pipelines"]


def test_a_configuration_too_large_for_its_record_is_refused(folder: Path) -> None:
    hello = yaml.safe_load((folder / "pipelines" / "hello.yaml").read_text())
    for number in range(3):
        pipeline = {**hello, "name": f"long{number}", "output": "x" * 400_000}
        (folder / "pipelines" / f"long{number}.yaml").write_text(yaml.safe_dump(pipeline, width=2_000_000))
    bundle, problems = load_folder(folder)
    assert bundle is None
    assert problems[-1].message.endswith("bytes; at most 1,000,000 fit into its record")


def test_a_bundle_without_files_names_the_pipeline_and_the_key(folder: Path) -> None:
    bundle, _ = load_folder(folder)
    assert bundle is not None
    raw = bundle.model_dump(mode="json")
    raw["pipelines"][0]["steps"][0]["model_class"] = "nobody"
    raw["model_classes"]["writer"]["scaling"]["max_replicas"] = 9
    raw["tenants"] = {"acme": {"ingress_topics": ["inference-usage"]}}
    errors = [problem for problem in check_bundle(Bundle.model_validate(raw)) if problem.severity is Severity.ERROR]
    assert [(problem.file, problem.line, problem.where, problem.message) for problem in errors] == [
        ("hello@1", None, "steps[0].model_class", "unknown model class `nobody`"),
        (
            "models",
            None,
            "writer.lanes",
            "a lane too small: `interactive` of `writer` has 4 partitions for 9 replicas",
        ),
        ("models", None, "writer.lanes", "a lane too small: `standard` of `writer` has 4 partitions for 9 replicas"),
        ("tenants", None, "acme.ingress_topics[0]", "`inference-usage` is a topic of Headway's own"),
    ]
    assert str(errors[0]).startswith("hello@1: unknown model class `nobody`")
