"""One file per section of the report: from a view to what the template shows."""
