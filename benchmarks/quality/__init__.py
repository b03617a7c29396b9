"""How good calibrators are beside peers."""
