"""Expressions: CEL in `${…}`, compiled once, without time, randomness or side effects."""

from services.chassis.expressions.errors import ExpressionError
from services.chassis.expressions.template import (
    Condition,
    Template,
    compile_condition,
    compile_template,
    condition_errors,
    known_template,
    template_errors,
)

__all__ = [
    "Condition",
    "ExpressionError",
    "Template",
    "compile_condition",
    "compile_template",
    "condition_errors",
    "known_template",
    "template_errors",
]
