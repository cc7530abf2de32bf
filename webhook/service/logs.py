"""One line per event on standard error, as JSON for collectors or as text for people."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

FORMATS = ("json", "text")


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON with `time`, `level`, `logger`, `message`, and a traceback in `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        fields: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if isinstance(decision := getattr(record, "decision", None), dict):
            fields |= decision  # with a message of its own: what the record is about has fields
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        line = json.dumps(fields, ensure_ascii=False, default=str)
        # Terminals obey some characters that JSON need not escape.
        return line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


class TextFormatter(logging.Formatter):
    """Formats a record for a terminal; control characters are escaped, so that no object can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line (a traceback adds its own)."""
        message = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in record.getMessage())
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname[0]} {record.name}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def start_logging(style: str, level: int = logging.INFO) -> None:
    """Send all logs to standard error in one style, replacing any earlier setup."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger("urllib3").setLevel(logging.WARNING)
