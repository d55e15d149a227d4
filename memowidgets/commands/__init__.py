"""Commands of ``python -m memowidgets`` that need no notebook."""
