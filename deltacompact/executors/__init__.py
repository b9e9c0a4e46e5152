"""Where tasks run: in this process or on Ray. No other room imports Ray."""
