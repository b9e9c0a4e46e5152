"""Looking after tables: verifying them, and rehashing their indices."""
