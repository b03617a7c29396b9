"""Files: formats and their atomic writing (`formats`), and what people call the columns of a table (`columns`)."""
