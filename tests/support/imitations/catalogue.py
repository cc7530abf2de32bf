"""Every imitated controller, by the name that tests ask for (`@pytest.mark.controllers("volcano")`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.support.imitations.controller import Imitation
from tests.support.imitations.spark import SparkApplications
from tests.support.imitations.volcano import VolcanoJobs

IMITATIONS: Final[Mapping[str, type[Imitation]]] = {"volcano": VolcanoJobs, "spark": SparkApplications}
