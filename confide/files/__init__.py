"""Files: formats and their atomic writing (`formats`), and what people call the columns of a table (`columns`).

The functions here are public: reading and writing as the library itself does it.
"""

from confide.files.formats import atomic, plain, read_json, read_table, read_yaml, write_json, write_table, write_text
