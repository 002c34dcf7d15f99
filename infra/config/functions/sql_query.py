"""Runs a checked query on the sales table, within limits of time, rows and memory."""

from datetime import date, time
from decimal import Decimal
from math import isfinite
from pathlib import Path
from threading import Timer

import duckdb
from pydantic import BaseModel, ConfigDict, Field
from sales_table import COLUMNS, TABLE, Cell, connect
from sql_check import MAX_CHARS, checked, refusal

from headway.functions import StepContext, StepError
from schemas.errors import ErrorCode

MAX_ROWS = 200
MAX_SECONDS = 2.0


class Query(BaseModel):
    """One SELECT."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sql: str = Field(min_length=1, max_length=10 * MAX_CHARS)


class Rows(BaseModel):
    """`sql` is what ran; `truncated` says that there were more rows than are shown."""

    model_config = ConfigDict(frozen=True)

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    truncated: bool
    sql: str


_opened: list[duckdb.DuckDBPyConnection] = []


def warm_up(home: Path) -> None:
    """Open the database, made from its package the first time: 0.3 s."""
    _opened[:] = [connect(home)]


def query(input: Query, ctx: StepContext) -> Rows:
    """Check, then run. StepError names what was refused, or the limit that was reached."""
    sql = checked(input.sql)
    (database,) = _opened
    with database.cursor() as cursor:
        columns, rows = run(cursor, sql, min(MAX_SECONDS, ctx.deadline_s))
    cells = tuple(tuple(_cell(value) for value in row) for row in rows[:MAX_ROWS])
    return Rows(columns=columns, rows=cells, truncated=len(rows) > MAX_ROWS, sql=sql)


def run(
    cursor: duckdb.DuckDBPyConnection, sql: str, limit_s: float
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    """Column names and up to MAX_ROWS + 1 rows; a timer interrupts the query after `limit_s`."""
    timer = Timer(limit_s, cursor.interrupt)
    timer.start()
    try:
        rows = cursor.execute(sql).fetchmany(MAX_ROWS + 1)
        return tuple(column[0] for column in cursor.description or ()), rows
    except duckdb.InterruptException:
        raise _stopped(f"took longer than {limit_s:.1f} s") from None
    except duckdb.OutOfMemoryException:
        raise _stopped("needs more than 256 MB") from None
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        raise refusal(f"by the database ({reason})", f"`{TABLE}` has the columns {', '.join(COLUMNS)}") from None
    finally:
        timer.cancel()


def _stopped(why: str) -> StepError:
    return StepError(f"the query {why}: ask for less at once", code=ErrorCode.INVALID_INPUT)


def _cell(value: object) -> Cell:
    """As JSON has it: averages to the cent, and no number that is not finite."""
    if isinstance(value, Decimal | float):
        return round(float(value), 2) if isfinite(value) else None
    if isinstance(value, date | time):
        return value.isoformat()
    return value if isinstance(value, str | int | bool | None) else str(value)
