"""A table as it is stored: metadata, manifests, content files, deletion vectors, and the door to PyIceberg."""
