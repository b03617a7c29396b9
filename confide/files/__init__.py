"""Files: formats (`formats`), their atomic writing (`disk`), and what people call the columns of a table (`columns`).

The functions here are public: reading and writing as the library itself does it.
"""

from confide.files.disk import atomic as atomic
from confide.files.formats import (
    Format as Format,
    plain as plain,
    read_json as read_json,
    read_table as read_table,
    read_yaml as read_yaml,
    split_pair as split_pair,
    write_json as write_json,
    write_table as write_table,
    write_text as write_text,
)
