"""How long each strategy takes, from what was measured."""
