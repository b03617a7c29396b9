"""Wrong labels found, beside peers and against what people say."""
