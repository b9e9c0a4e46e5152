"""The vocabulary of the control plane."""
