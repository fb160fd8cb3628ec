"""The consistency check that workers run periodically, or an operator by hand."""
