"""The types of the engine and every name, unit and code that crosses a boundary.

Nothing is decided here, and nothing is read or written. Import from the module: `from engine.api.pod import Pod`.
"""
