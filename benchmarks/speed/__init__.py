"""Speed and memory beside peers, in one run."""
