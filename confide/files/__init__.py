"""Files: formats (`formats`), their atomic writing (`disk`), and what people call the columns of a table (`columns`).

The functions here are public: reading and writing as the library itself does it.
"""

from confide.files.disk import atomic
from confide.files.formats import plain, read_json, read_table, read_yaml, write_json, write_table, write_text
