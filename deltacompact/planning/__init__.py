"""What a session will do, decided before it does anything: pure, from states and limits to a plan with reasons."""
