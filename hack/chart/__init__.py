"""The Helm chart, generated: its templates from manifests/base and manifests/components, the rest from its settings.

`python -m hack.chart` writes manifests/charts/topogate anew. Here belong what a template changes of its base file
(templates.py), the settings (settings.py) with values, schema and page made from them (values.py), and what a release
consists of (release.py). The templates that no base file has are written by hand, in the chart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = ROOT / "manifests"
CHART: Final = MANIFESTS / "charts" / "topogate"
