"""The mode `convert`: equality deletes become position deletes or deletion vectors; data files stay as they are."""
