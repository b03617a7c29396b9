"""What was found beside the papers' claims, and the page docs/findings.md made of it."""
