"""A year of a pizza shop's sales (the `pizzaplace` table of the package great-tables) as a read-only DuckDB file.

One row is one pizza sold in 2015: 49,574 of them in 21,350 orders.
"""

import csv
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from once import made_once

if TYPE_CHECKING:
    import duckdb

TABLE = "sales"

Cell = str | float | int | bool | None
"""A value of a row, as JSON has it."""

COLUMNS = ("order_id", "date", "time", "pizza", "size", "type", "price")

_WORDS = {
    "cali": "california", "ckn": "chicken", "cpcllo": "capocollo", "dlx": "deluxe", "fet": "feta", "ital": "italian",
    "peppr": "pepper", "southw": "southwest", "spin": "spinach", "supr": "supreme", "veg": "vegetables",
}  # fmt: skip
_NAMES = {"pep_msh_pep": "pepperoni mushroom peppers", "prsc_argla": "prosciutto arugula"}

_SEALED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",  # else a query reads variables of this process
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "temp_directory": "",
    "memory_limit": "256MB",
    "threads": "1",
    "lock_configuration": "true",
}
"""Whatever SQL reaches it, the database can read its one table and nothing else of the machine."""


def pizza_names() -> list[str]:
    """The names in the table, sorted."""
    with _source().open(encoding="utf-8", newline="") as file:
        return sorted({display_name(row["name"]) for row in csv.DictReader(file)})


def connect(home: Path) -> "duckdb.DuckDBPyConnection":
    """A sealed, read-only connection; the file is made from the package's CSV the first time, 0.2 s."""
    import duckdb

    source = _source()
    digest = sha256(source.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]
    path = made_once(home / "index" / f"{TABLE}-{digest}.duckdb", lambda part: _make(source, part))
    return duckdb.connect(str(path), read_only=True, config=_SEALED)


def display_name(code: str) -> str:
    """The words of a pizza's code: `classic_dlx` is the classic deluxe."""
    return _NAMES.get(code) or " ".join(_WORDS.get(word, word) for word in code.split("_"))


def _source() -> Path:
    """Found without importing the package, whose dependencies are not installed."""
    package = find_spec("great_tables")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("great-tables is not installed: pip install --no-deps -r infra/weights.txt")
    return Path(package.submodule_search_locations[0], "data", "05-pizzaplace.csv")


def _make(source: Path, part: Path) -> None:
    import duckdb

    with duckdb.connect(str(part)) as database:
        database.execute("CREATE TABLE codes AS SELECT * FROM read_csv(?, header = true)", [str(source)])
        codes = [code for (code,) in database.execute("SELECT DISTINCT name FROM codes").fetchall()]
        database.execute("CREATE TABLE names (code VARCHAR, pizza VARCHAR)")
        database.executemany("INSERT INTO names VALUES (?, ?)", [(code, display_name(code)) for code in codes])
        database.execute(
            """CREATE TABLE sales AS
               SELECT id AS order_id, date, time, pizza, size, type, price::DECIMAL(6, 2) AS price
               FROM codes JOIN names ON name = code ORDER BY date, time, order_id, pizza, size"""
        )
        database.execute("DROP TABLE codes")
        database.execute("DROP TABLE names")
