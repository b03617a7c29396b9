"""Tables as arrow: columns of one value a row, without a Python object for each, for a million rows and more."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from confide.core import files
from confide.core.door import InputError


def read_arrow(path: str | Path) -> tuple[pa.Table, dict[str, str]]:
    """The columns of one value a row as an arrow table, and the metadata; of parquet nothing else is read.

    A folder is read as the parquet files in it, one after the other.
    """
    path = Path(path)
    if path.is_dir():
        parts = [read_arrow(part) for part in sorted(path.glob("*.parquet"))]
        return pa.concat_tables([table for table, _ in parts], promote_options="permissive"), parts[0][1]
    if path.suffix != ".parquet":
        columns, metadata = files.read_table(path)
        return pa.table({name: pa.array(values) for name, values in columns.items() if values.ndim == 1}), metadata
    if not path.exists():
        raise InputError(f"{path} must be a file, but it does not exist; check the path")
    try:
        schema = pq.read_schema(path)
        flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
        return pq.read_table(path, columns=flat), files.text_metadata(schema.metadata)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} must be a readable parquet file, but reading it failed: {error}") from None


def column_names(path: str | Path) -> list[str]:
    """The names of a table's columns; of parquet only the schema is read."""
    path = Path(path)
    if path.is_dir():
        path = min(path.glob("*.parquet"))
    if path.suffix != ".parquet":
        return list(files.read_table(path)[0])
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} must be a readable parquet file, but reading it failed: {error}") from None


def arrow_bytes(table: pa.Table, kind: str) -> bytes:
    """An arrow table as the bytes of a parquet or csv file."""
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, sink, compression="zstd")
    else:
        from pyarrow import csv as arrow_csv

        arrow_csv.write_csv(table, sink)
    return bytes(sink.getvalue())


def num_rows(path: str | Path) -> int:
    """How many rows a table has; of parquet only the footer is read."""
    path = Path(path)
    return int(pq.read_metadata(path).num_rows) if path.suffix == ".parquet" else int(read_arrow(path)[0].num_rows)


def metadata_of(path: str | Path) -> dict[str, str]:
    """The metadata of a parquet file as text."""
    return files.text_metadata(pq.read_schema(Path(path)).metadata)


def list_width(path: str | Path, names: tuple[str, ...]) -> int:
    """Values per row of the first of these columns that a parquet file has; 0 without one."""
    footer = pq.read_metadata(Path(path))
    leaves = [footer.schema.column(k).path.split(".")[0] for k in range(footer.num_columns)]
    for name in names:
        if name in leaves and footer.num_rows:
            values = sum(
                footer.row_group(g).column(leaves.index(name)).num_values for g in range(footer.num_row_groups)
            )
            return int(values) // int(footer.num_rows)
    return 0
