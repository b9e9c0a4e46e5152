"""What every room speaks: the vocabulary, errors, settings, events and words."""
