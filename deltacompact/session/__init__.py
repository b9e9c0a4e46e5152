"""One partition stream from plan to commit: the driver, its records, and its stages."""
