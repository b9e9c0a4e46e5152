"""Dead rows of data files become delete files: position deletes in version 2, deletion vectors in version 3."""
