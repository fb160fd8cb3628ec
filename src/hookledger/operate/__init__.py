"""What operators see and do, one module or folder for each capability: its values, its functions, its runner.

Each function gets the `Context` and, where it changes something, the `Audit` that `audit.by` made; the command line
and the JSON API call these functions and nothing below them. The store's operations of a capability, and the values
that they return, are in `store/ops/` under the same name. A new action is one function in each of them, one in
`operate/api/`, one in `cli/`, and its line in the two tables (`api/table.py`, `cli/__init__.py`).
"""
