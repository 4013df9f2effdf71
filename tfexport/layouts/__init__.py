"""Other ways to lay an exported model out than our own bundle, for programs that know only those."""
