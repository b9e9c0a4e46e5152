"""Plans a session before it begins: pure functions from states and limits to a plan with reasons."""
