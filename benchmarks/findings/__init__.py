"""What was found beside the papers' claims, and the page benchmarks/results/findings.md made of it."""
