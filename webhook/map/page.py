"""The page of the map: one HTML text with its script, style and data inside, and a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import resources
from typing import Final

from webhook.map.model import MapFrame

# In this order they make one script: each imports only from those before it, and no name of a file is used by another.
MODULES: Final = (
    "model",
    "looks",
    "layout",
    "overview",
    "canvas",
    "dom",
    "details",
    "panels",
    "table",
    "timeline",
    "main",
)

_IMPORT: Final = re.compile(r"^import \{[^}]*\} from \"\./(\w+)\.js\";\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?function |const |class )", re.MULTILINE)
# In a script element a browser looks for `</script` and `<!--` alone; the others are harmless there, and stay so
# wherever the text is copied to.
_ESCAPES: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def static_page(frame: MapFrame) -> str:
    """Return the page of one moment, which needs no server and opens no connection."""
    return _page(data=frame.json_text, policy=content_policy(live=False))


def live_page() -> str:
    """Return the page that asks its server for the frames."""
    return _page(data="null", policy=content_policy(live=True))


def content_policy(*, live: bool) -> str:
    """Return the Content-Security-Policy: our script and style by their hashes, and connections to the server if live.

    Trusted Types without a policy: no text can become HTML or script, whatever the script does.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script())}'",
            f"style-src '{_hash(_asset('style.css'))}'",
            f"connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


@cache
def script() -> str:
    """Return the modules as one script, without their imports and exports."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _asset(f"{name}.js"))) for name in MODULES)


def _page(*, data: str, policy: str) -> str:
    parts = {"POLICY": policy, "STYLE": _asset("style.css"), "DATA": data.translate(_ESCAPES), "SCRIPT": script()}
    return re.sub(r"@(POLICY|STYLE|DATA|SCRIPT)@", lambda found: parts[found[1]], _asset("page.html"))


@cache
def _asset(name: str) -> str:
    return resources.files("webhook.map").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
