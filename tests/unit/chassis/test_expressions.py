"""Templates and conditions: what they evaluate to, what they refuse, and in which words."""

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import Json
from services.chassis.expressions import (
    ExpressionError,
    compile_condition,
    compile_template,
    condition_errors,
    known_template,
    template_errors,
)

STEPS = ("embed", "guard", "phrase", "safe")
INPUT: Json = {
    "q": "hé",
    "n": 1,
    "f": 0.5,
    "yes": True,
    "none": None,
    "list": [1, 2],
    "object": {"a": {"b": 7}, "wörter": 1},
    "words": ["x", "y"],
}
OUTPUTS: dict[str, Json] = {
    "embed": {"vectors": [[0.25, -1.0]], "dimensions": 2},
    "guard": {"label": "safe"},
    "safe": True,
}


def value_of(template: Json, request: Json = None, outputs: dict[str, Json] | None = None) -> Json:
    request = INPUT if request is None else request
    return compile_template(template, STEPS).evaluate(request, OUTPUTS if outputs is None else outputs)


def load_error(template: Json) -> ExpressionError:
    with pytest.raises(ExpressionError) as raised:
        compile_template(template, STEPS)
    return raised.value


def run_error(template: Json, request: Json = None, outputs: dict[str, Json] | None = None) -> ExpressionError:
    compiled = compile_template(template, STEPS)
    with pytest.raises(ExpressionError) as raised:
        compiled.evaluate(INPUT if request is None else request, OUTPUTS if outputs is None else outputs)
    return raised.value


# ---- templates ----


@pytest.mark.parametrize("literal", [None, True, 3, 2.5, "text", "$ {x} $$", "}", [], {}, {"a": [1, {"b": "c"}]}])
def test_a_template_without_expressions_is_itself(literal: Json) -> None:
    assert value_of(literal) == literal


@pytest.mark.parametrize("literal", [1, True, 1.0, "1", -0.0, 0.0, 0, None, [1], {"a": 1}, {"a": True}, {"a": "1"}])
def test_a_known_template_is_mistaken_for_no_other(literal: Json) -> None:
    for _ in range(2):
        assert json.dumps(known_template(literal, STEPS).evaluate(None, {})) == json.dumps(literal)


def test_what_a_known_template_made_is_its_readers_own() -> None:
    written = {"list": [{}], "q": "${input.q}"}
    first = known_template(written, STEPS).evaluate(INPUT, {})
    first["list"][0]["changed"] = first["changed"] = True
    assert known_template(written, STEPS).evaluate(INPUT, {}) == {"list": [{}], "q": "hé"}
    assert known_template(written, ["embed"]).evaluate(INPUT, {}) == {"list": [{}], "q": "hé"}


def test_a_known_template_knows_only_its_own_steps() -> None:
    assert known_template("${steps.safe}", ["safe"]).evaluate(None, OUTPUTS) is True
    for _ in range(2):
        with pytest.raises(ExpressionError, match="unknown step `safe`"):
            known_template("${steps.safe}", ["embed"])


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${input.q}", "hé"),
        ("${input.n}", 1),
        ("${input.f}", 0.5),
        ("${input.yes}", True),
        ("${input.none}", None),
        ("${input.list}", [1, 2]),
        ("${input}", INPUT),
        ("${steps.embed.vectors[0]}", [0.25, -1.0]),
        ("${steps.embed.vectors[0][1]}", -1.0),
        ("${steps.safe}", True),
        ("${steps.phrase}", {}),
        ('${input["object"].a["b"]}', 7),
        ('${input.object["wörter"]}', 1),
        ("${.input.q}", "hé"),
        ("${ input.n + 1 }", 2),
        ("${1u}", 1),
        ("${[steps.embed.vectors[0], [input.none]]}", [[0.25, -1.0], [None]]),
        ("${{'b': 1, 'a': {'c': 2.5}}}", {"a": {"c": 2.5}, "b": 1}),
        ("${string(timestamp('2020-01-01T00:00:00Z'))}", "2020-01-01T00:00:00Z"),
    ],
)
def test_an_expression_alone_keeps_its_type(template: str, value: Json) -> None:
    found = value_of(template)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("a ${input.q} b", "a hé b"),
        ("${input.q}${input.n}", "hé1"),
        (" ${input.n}", " 1"),
        ("${input.yes} ${input.none} ${input.f} ${input.list} ${input.object.a}", 'true null 0.5 [1,2] {"b":7}'),
        ("${[input.q]}!", '["hé"]!'),
    ],
)
def test_expressions_within_text_are_interpolated(template: str, text: str) -> None:
    assert value_of(template) == text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("$${input.q}", "${input.q}"),
        ("a$${b", "a${b"),
        ("$$${x}", "$${x}"),
        ("$${}${input.n}$${", "${}1${"),
        ("${input.n}$${x}", "1${x}"),
        ("costs $5 {net}", "costs $5 {net}"),
    ],
)
def test_two_dollars_escape(template: str, text: str) -> None:
    assert value_of(template) == text


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{'a': {'b': 1}}.a.b", 1),
        ("'}'", "}"),
        ('"}{"', "}{"),
        ("'\\'}'", "'}"),
        ('"\\"}"', '"}'),
        ("'''it's }'''", "it's }"),
        ('"""say "}" """', 'say "}" '),
        ("r'\\d}'", "\\d}"),
        ("input.n // a comment with } and ' \n", 1),
        ("'//' + '}'", "//}"),
        ("'a\nb' + \"\r\"", "a\nb\r"),
        ("'''a\nb'''", "a\nb"),
    ],
)
def test_braces_and_quotes_inside_an_expression_belong_to_it(source: str, value: Json) -> None:
    assert value_of(f"${{{source}}}") == value
    assert value_of(f"<${{{source}}}>") == f"<{value}>"


def test_templates_nest_in_lists_and_objects() -> None:
    template = {"messages": [{"role": "user", "content": "${input.q}?"}, {"n": "${input.n}"}], "max": 3}
    assert value_of(template) == {"messages": [{"role": "user", "content": "hé?"}, {"n": 1}], "max": 3}


def test_a_template_knows_what_it_reads() -> None:
    compiled = compile_template({"a": "${steps.embed.vectors}", "b": ["${steps.guard.label} steps.phrase"]}, STEPS)
    assert compiled.references() == {"embed", "guard"}
    assert not compiled.reads_input
    assert compile_template("${input.q}", STEPS).reads_input
    assert compile_template("${'steps.embed input'}", STEPS).references() == set()
    assert compile_template("${input.list.map(x, steps.guard)}", STEPS).references() == {"guard"}
    assert compile_template("${input.?q.optMap(x, x + steps.guard.label).orValue('')}", STEPS).references() == {
        "guard"
    }
    assert compile_template("${{'k': steps.embed, steps.guard.label: 1}}", STEPS).references() == {"embed", "guard"}


def test_a_step_without_an_output_reads_as_an_empty_object() -> None:
    assert value_of("${steps.phrase.?text.orValue('none')}") == "none"
    assert value_of("${has(steps.phrase.text)}") is False
    assert value_of("${steps.phrase == {}}") is True
    assert value_of("${has(steps.guard.label)}") is True


def test_optionals_and_loops_work() -> None:
    assert value_of("${input.words.map(w, w + '!').join(',')}") == "x!,y!"
    assert value_of("${[1, ?input.?nope]}") == [1]
    assert value_of("${input.?q.optMap(x, x + '!').orValue('')}") == "hé!"
    assert value_of("${input.list[?7].orValue(0)}") == 0
    assert value_of("${input.?object.?a.?b.orValue(0)}") == 7
    assert value_of("${input.words.exists(w, w == 'y')}") is True
    assert value_of("${input.q.split(',', 10).map(w, size(w))}") == [2]


def test_an_expression_may_read_a_whole_and_its_part() -> None:
    assert value_of("${[input.object.a.b, size(input.object), input.object.a.size()]}") == [7, 2, 1]


def test_nearby_steps_are_suggested_if_they_are_few() -> None:
    (error,) = template_errors("${steps.zz}", [f"step{number}" for number in range(20)])
    assert error.hint == ""
    (error,) = template_errors("${steps.zz}", [])
    assert error.hint == ""


def test_the_keys_of_a_made_object_are_in_order_everywhere() -> None:
    """The library iterates its maps in an order of each process's own."""
    keys = [f"k{number}" for number in range(30)]
    template = "${{" + ", ".join(f"'{key}': 1" for key in keys) + "}}"
    assert list(value_of(template)) == sorted(keys)


# ---- conditions ----


def test_a_condition_is_true_or_false() -> None:
    condition = compile_condition("${steps.guard.label != 'injection' && input.yes}", STEPS)
    assert condition.evaluate(INPUT, OUTPUTS) is True
    assert condition.evaluate({"yes": True}, {"guard": {"label": "injection"}}) is False
    assert condition.references() == {"guard"}
    assert condition.reads_input
    assert compile_condition("  ${steps.safe}\n", STEPS).evaluate({}, OUTPUTS) is True
    assert not compile_condition("${steps.safe}", STEPS).reads_input


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("steps.safe", "a condition is one expression and nothing else"),
        ("${steps.safe} ", None),
        ("${steps.safe}${steps.safe}", "a condition is one expression and nothing else"),
        ("not ${steps.safe}", "a condition is one expression and nothing else"),
        ("", "a condition is one expression and nothing else"),
        ("${'yes'}", "a condition must be true or false; this is of type string"),
        ("${1 + 1}", "a condition must be true or false; this is of type int"),
        ("${input.list.map(x, x)}", "a condition must be true or false; this is of type list<dyn>"),
        ("${steps.nope}", "unknown step `nope`"),
    ],
)
def test_what_cannot_be_a_condition_is_refused_at_load(expression: str, message: str | None) -> None:
    errors = [error.message for error in condition_errors(expression, STEPS)]
    assert errors == ([message] if message else [])
    if message:
        with pytest.raises(ExpressionError, match="^" + message.replace("<", "<")):
            compile_condition(expression, STEPS)


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("q", "a string"),
        ("n", "a number"),
        ("f", "a number"),
        ("none", "null"),
        ("list", "a list"),
        ("object", "an object"),
    ],
)
def test_a_condition_that_turns_out_to_be_something_else_is_an_error(field: str, kind: str) -> None:
    with pytest.raises(ExpressionError, match=f"a condition must be true or false, not {kind}"):
        compile_condition(f"${{input.{field}}}", STEPS).evaluate(INPUT, {})


# ---- refused at load ----


@pytest.mark.parametrize(
    ("template", "message", "position", "hint"),
    [
        ("${steps.embd.vectors[0]}", "unknown step `embd`", 2, "did you mean `steps.embed`?"),
        ("x ${ input.q + steps.zz }", "unknown step `zz`", 15, "known: `steps.embed`, `steps.guard`, "),
        ("${has(steps.nope.x)}", "unknown step `nope`", 6, "known: "),
        ("${steps['embed']}", "`steps` alone is no value", 2, "write steps.<id>"),
        ("${size(steps)}", "`steps` alone is no value", 7, "write steps.<id>"),
        ("${embed.vectors}", "unknown name `embed`", 2, "did you mean `steps.embed`?"),
        ("${inptu.q}", "unknown name `inptu.q`", 2, "an expression knows `input`"),
        ("${now()}", "unknown name `now`", 2, "an expression knows `input`"),
        ("${input.q.nope()}", "unknown name `nope`", 10, "an expression knows"),
        ("${\n  steps.embed +\n  nope}", "unknown name `nope`", 21, "an expression knows"),
        ("${'é😀' + nope}", "unknown name `nope`", 9, "an expression knows"),
        ("${'\n' + '\n\n' + nope}", "unknown name `nope`", 15, "an expression knows"),
        ("${1 +}", "syntax error: the expression ends too early", 5, ""),
        ("${input.q input.n}", "syntax error at `input`", 10, ""),
        ("${a b c d}", "syntax error at `b`", 4, ""),
        ("${1 + 'a'}", "`+` cannot take (int, string)", 4, ""),
        ("${'a' in 'b'}", "`in` cannot take (string, string)", 6, ""),
        ("${steps.safe ? 1 : 'a'}", "`? :` cannot take (dyn, int, string)", 13, ""),
        ("${'a'.contains(1)}", "`contains` cannot take (string, int)", 14, ""),
        ("${if}", "reserved identifier: if", 2, ""),
        ("${}", "an empty expression", 2, "`$${`"),
        ("${ \n}", "an empty expression", 2, "`$${`"),
        ("a${input.q", "`${` is not closed", 1, "add the `}`"),
        ("${{'a': 1}", "`${` is not closed", 0, "add the `}`"),
        ("${'a}", "a string in the expression is not closed", 2, ""),
        ("${has(steps.embed)}", "`has` tests a field, and a step always is there", 2, "has(steps.embed.<field>)"),
        ("${ has ( .steps . safe ) }", "`has` tests a field, and a step always is there", 2, "steps.safe != {}"),
        ("${[1].map(input, input)}", "a loop's variable cannot be named `input`", 2, ""),
        ("${[1].exists(steps, true)}", "a loop's variable cannot be named `steps`", 2, ""),
        ("${timestamp('2020-01-01T00:00:00Z')}", "its value is a timestamp", 2, ""),
        ("${duration('1s')}", "its value is a duration", 2, ""),
        ("${b'a'}", "its value is bytes", 2, ""),
        ("${type(1)}", "its value is a type", 2, ""),
        ("${input.?q}", "its value is an optional: end it with .orValue(…)", 2, ""),
        ("${input.q.split(',').map(x, x)}", "beside a loop, `split` needs a limit", 2, "split(separator, 1000)"),
        ("${input.q.split(',', -1).map(x, x)}", "beside a loop, `split` needs a limit of ≤ 1,000", 2, ""),
        ("${input.q.split(',', 1001).map(x, x)}", "beside a loop, `split` needs a limit of ≤ 1,000", 2, ""),
        ("${input.q.split(',', input.n).map(x, x)}", "beside a loop, `split` needs a limit of ≤ 1,000", 2, ""),
        ("${'a\0'}", "an expression holds no NUL character", 4, ""),
        ("${'" + "a" * 16_384 + "'}", "an expression has at most 16,384 characters", 2, ""),
    ],
)  # fmt: skip
def test_a_mistake_is_found_at_load(template: str, message: str, position: int, hint: str) -> None:
    error = load_error(template)
    assert error.message.startswith(message)
    assert error.position == position
    assert hint in error.hint
    assert str(error) == error.message
    assert "\n" not in error.message + error.hint


def test_a_word_in_a_string_is_no_test_of_a_step() -> None:
    assert value_of("${'has(steps.safe)'}") == "has(steps.safe)"
    assert value_of("${input.n // has(steps.safe)\n}") == 1
    assert load_error("${has(steps.nope)}").message == "unknown step `nope`"


def test_every_mistake_of_a_template_is_found_at_once() -> None:
    template = {"a": ["${steps.one + steps.two}", "${1 +} ${nope}"], "${b}": 1, "c": "${input.q}"}
    found = [(error.path, error.position, error.message) for error in template_errors(template, STEPS)]
    assert found == [
        (("${b}",), 0, "a key holds no expression"),
        (("a", 0), 2, "unknown step `one`"),
        (("a", 0), 14, "unknown step `two`"),
        (("a", 1), 5, "syntax error: the expression ends too early"),
        (("a", 1), 9, "unknown name `nope`"),
    ]


def test_a_template_of_many_levels_is_refused() -> None:
    template: Json = "x"
    for _ in range(70):
        template = [template]
    assert load_error(template).message == "a template has at most 64 levels"


@pytest.mark.parametrize(
    "source",
    [
        "(" * 200 + "1" + ")" * 200,
        "[" * 5_000 + "]" * 5_000,
        "(" * 16_000,
        "+".join(["1"] * 5_000),
        "input" + ".a" * 5_000,
        "input" + "[0]" * 5_000,
        "true?1:" * 2_000 + "2",
        "[1].map(x," * 1_400 + "1" + ")" * 1_400,
        "'a'" + ".trim()" * 2_000,
    ],
)
def test_deep_expressions_are_refused_without_harm(source: str) -> None:
    error = load_error(f"${{{source}}}")
    assert error.message.startswith(("nested or chained too deeply", "syntax error"))


# ---- refused while a run is under way ----


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("${input.nope}", "`input.nope`: there is no field `nope`"),
        ("${input.q + input.nope}", "`input.q + input.nope`: there is no field `nope`"),
        ("${steps.phrase.text}", "`steps.phrase.text`: there is no field `text`"),
        ("${input.n.x}", "`input.n.x`: `x` is read from something that is no object"),
        ("${input.list.x}", "`input.list.x`: `x` is read from a list: index it first, like [0]"),
        ("${input.list[2]}", "`input.list[2]`: it reads element 2 of a list of 2"),
        ("${input.list[-1]}", "`input.list[-1]`: it reads element -1 of a list of 2"),
        ("${input.object[0]}", "`input.object[0]`: there is no field `0`"),
        ("${[input.list[5]]}", "`[input.list[5]]`: it indexes a list where there is no element"),
        ("${[input.n.x]}", "`[input.n.x]`: it reads a field of something that is no object"),
        ("${[input.q[0]]}", "`[input.q[0]]`: it indexes something that is neither a list nor an object"),
        ("${input.q + 1}", "`input.q + 1`: the types do not fit: +(string, int64)"),
        ("${input.n + input.f}", "`input.n + input.f`: the types do not fit: +(int64, double)"),
        ("${input.q ? 1 : 2}", "`input.q ? 1 : 2`: a condition is neither true nor false"),
        ("${input.n.map(x, x)}", "`input.n.map(x, x)`: it loops over something that is neither a list nor an object"),
        ("${1 / (input.n - 1)}", "`1 / (input.n - 1)`: it divides by zero"),
        ("${9223372036854775807 + input.n}", "`9223372036854775807 + input.n`: a whole number leaves 64 bits"),
        ("${optional.of(input.n).value() + optional.none().value()}", "takes the value of an empty optional"),
        ("${input.f / 0.0}", "`input.f / 0.0`: its value is not a finite number"),
        ("${[input.f / 0.0]}", "its value is not a finite number"),
        ("${[b'a']}", "`[b'a']`: its value holds bytes: wrap them in string(…)"),
        ("${[timestamp('2020-01-01T00:00:00Z')]}", "its value holds a timestamp: wrap it in string(…)"),
        ("${[duration('1s')]}", "its value holds a duration: wrap it in string(…)"),
        ("${[type(1)]}", "its value holds a type: compare it, or wrap it in string(…)"),
        ("${{1: 2}}", "its value has an object with keys that are no strings"),
        ("${input.list[?0]}", "its value is an optional: end it with .orValue(…)"),
        ("${[input.?q]}", "its value holds an optional: end it with .orValue(…)"),
    ],
)
def test_a_failed_evaluation_says_why(template: str, message: str) -> None:
    error = run_error({"k": ["x", template]})
    assert message in error.message
    assert error.path == ("k", 1)
    assert "\n" not in error.message


def test_an_error_shows_where_its_expression_stands() -> None:
    error = run_error("text ${input.q} and ${input.nope} more")
    assert error.position == 20
    assert error.message == "`input.nope`: there is no field `nope`"
    long = run_error("${input.nope + '" + "x" * 100 + "'}")
    assert long.message.startswith("`input.nope + 'xxx")
    assert "…`: there is no field" in long.message


SECRET = "my-secret-question"


@pytest.mark.parametrize(
    "template",
    [
        "${input.object[input.secret]}",
        "${input.secret.x}",
        "${int(input.secret)}",
        "${double(input.secret)}",
        "${timestamp(input.secret) == timestamp(input.secret)}",
        "${duration(input.secret) == duration(input.secret)}",
        "${input.q.matches(input.secret + '(')}",
        "${'%d'.format([input.secret])}",
        "${input.secret + 1}",
        "${input.secret.substring(100)}",
        "${input.big + 1}",
        "${[input.secret, input.nul]}",
    ],
)
def test_no_value_leaks_into_an_error(template: str) -> None:
    request = {"secret": SECRET, "q": "x", "object": {}, "big": 2**70, "nul": f"{SECRET}\0"}
    error = run_error(template, request)
    assert SECRET not in str(error)
    assert str(2**70) not in str(error)


# ---- hostile values ----


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a\0b", "a text it reads holds a NUL character"),
        ({"a\0": 1}, "a text it reads holds a NUL character"),
        ("a\ud800", "a text it reads is not valid Unicode"),
        ([{"\udfff": 1}], "a text it reads is not valid Unicode"),
        (2**64, "a whole number it reads does not fit 64 bits"),
        (-(2**70), "a whole number it reads does not fit 64 bits"),
        (json.loads("[" * 80 + "]" * 80), "a value it reads has more than 64 levels"),
    ],
)
def test_values_the_library_would_mangle_are_refused_but_pass_through_unread(value: Json, message: str) -> None:
    assert message in run_error("${[input.x]}", {"x": value}).message
    assert value_of("${input.x}", {"x": value}) == value
    assert value_of("${input.y + 'b'}", {"x": value, "y": "a"}) == "ab"


def test_a_loop_is_bounded() -> None:
    assert len(value_of("${input.x.map(i, i)}", {"x": ["a"] * 1_000})) == 1_000
    message = "its loop reads a list or object of more than 1,000 elements"
    assert message in run_error("${input.x.map(i, i)}", {"x": ["a"] * 1_001}).message
    assert message in run_error("${input.x.exists(i, i == '')}", {"x": {str(i): 1 for i in range(1_001)}}).message
    assert value_of("${size(input.x)}", {"x": ["a"] * 5_000}) == 5_000


def test_loops_within_loops_are_bounded() -> None:
    request = {"x": ["a"] * 1_000}
    error = run_error("${input.x.map(i, input.x.map(j, i + j)).size()}", request)
    assert "its loops go around more than 10,000 times" in error.message


@pytest.mark.parametrize(
    "template",
    [
        "${input.items.map(i, i + input.text)}",
        "${input.items.map(i, input.items.map(j, input.text + i + j))}",
        "${input.text.replace('x', input.text)}",
        "${input.text.contains(input.text)}",
        "${input.items.join(input.text)}",
        "${input.items.filter(i, input.text.contains(i + input.text))}",
    ],
)
def test_work_that_grows_with_the_square_of_hostile_input_is_refused(template: str) -> None:
    request = {"items": ["x"] * 900, "text": "x" * 900_000}
    assert "the values are too large for what it does with them" in run_error(template, request).message


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${input.docs.map(d, d.text).join('\n').size()}", 900_099),
        ("${input.docs.map(d, d.text + input.q).join('\n').size()}", 900_299),
        ("${input.docs.filter(d, d.text.contains(input.q)).size()}", 0),
        ("${input.docs[0].text.replace('x', 'yy').size()}", 18_000),
    ],
)
def test_honest_work_on_large_input_passes(template: str, value: int) -> None:
    assert value_of(template, {"docs": [{"text": "x" * 9_000}] * 100, "q": "why?"[:2]}) == value


def test_a_result_is_bounded() -> None:
    request = {"x": ["a" * 3_000] * 900}
    assert "its value has more than 1,048,576 characters" in run_error("${input.x.map(i, i)}", request).message
    assert "its value has more than 1,048,576 characters" in run_error("${[input.x]}", request).message
    assert "the text has more than 1,048,576 characters" in run_error("${input.x}.", request).message


def test_a_result_of_many_keys_is_bounded() -> None:
    request = {"x": {"k" * 500 + str(number): 1 for number in range(3_000)}}
    assert "its value has more than" in run_error("${[input.x]}", request).message


# ---- properties ----

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c"]), children),
    max_leaves=20,
)  # fmt: skip


@settings(deadline=None)
@given(_json)
def test_values_survive_the_library(value: Json) -> None:
    """Through the library (in a list) and past it (a plain selection) a value stays what it is."""
    (through,) = value_of("${[input.v]}", {"v": value})
    assert through == value_of("${input.v}", {"v": value}) == value
    assert json.dumps(through, sort_keys=True) == json.dumps(value, sort_keys=True)


@settings(deadline=None)
@given(_json, st.lists(st.sampled_from(["a", "b", "c", 0, 1]), min_size=1, max_size=4))
def test_a_plain_selection_is_what_the_library_would_select(value: Json, keys: list[str | int]) -> None:
    source = "input.v" + "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in keys)
    assert _outcome(f"${{{source}}}", value) == _outcome(f"${{[{source}][0]}}", value)


def _outcome(template: str, value: Json) -> Any:
    try:
        return value_of(template, {"v": value})
    except ExpressionError:
        return ExpressionError


@settings(deadline=None)
@given(st.text())
def test_any_text_is_a_template_or_a_clear_error(text: str) -> None:
    for error in template_errors(text, STEPS) + template_errors("${" + text + "}", STEPS):
        assert error.message
        assert "\n" not in error.message


@settings(deadline=None)
@given(st.text())
def test_escaped_text_is_itself(text: str) -> None:
    assert value_of(text.replace("${", "$${")) == text


# ---- process-wide ----


def test_results_do_not_depend_on_the_process() -> None:
    """Neither the hash seed nor the address space may show in a value."""
    code = (
        "from services.chassis.expressions import compile_template as c; import json;"
        'print(json.dumps(c([\'${[input.m]}\', \'${{"b": 1, "a": 2, "d": 3, "c": 4}}\'], []).evaluate('
        "{'m': {k: k for k in 'qwertyuiop'}}, {})))"
    )
    outputs = {subprocess.check_output([sys.executable, "-c", code], timeout=60) for _ in range(3)}
    assert len(outputs) == 1


def test_infinity_never_leaves() -> None:
    assert math.isinf(value_of("${input.x}", {"x": math.inf}))  # it cannot arrive: JSON is decoded strictly
    assert "not a finite number" in run_error("${[input.x]}", {"x": math.inf}).message
