"""The paper's experiments, one file a group of figures."""
