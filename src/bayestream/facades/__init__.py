"""Other libraries' interfaces: thin mutable shells over a learner and its state."""
