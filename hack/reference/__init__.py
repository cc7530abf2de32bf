"""The generated files of the repository: reference pages, schemas, manifests, a picture; one module each kind of file.

`python -m hack.reference` rewrites them all, and a test holds the committed files against what it would write. This is
a tool of the checkout and no part of the wheel: it may import everything, and nothing of the product imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hack.reference.cli_page import ANSWERS, cli_page
from hack.reference.kind_entries_page import kind_entries_page
from hack.reference.kinds_page import kinds_page
from hack.reference.manifest_pages import webhooks_page, workloads_role_page
from hack.reference.messages_page import messages_page
from hack.reference.policy_page import policy_page
from hack.reference.rights_page import rights_page
from hack.reference.rooms_picture import rooms_picture
from hack.reference.schemas import answer_schema, kind_entry_schema, policy_schema, schema_text, simulate_schema
from local.controllers.catalogue import how_tested

_ROOT: Final = Path(__file__).parents[2]


def pages() -> dict[str, str]:
    """Return the text of every generated file by its path in the repository."""
    return {
        "schemas/policy.schema.json": schema_text(policy_schema()),
        "schemas/kind-entry.schema.json": schema_text(kind_entry_schema()),
        "schemas/simulate.schema.json": schema_text(simulate_schema()),
        **{
            f"schemas/{command.replace(' ', '-')}.schema.json": schema_text(answer_schema(model, command))
            for command, model in ANSWERS.items()
        },
        "docs/images/rooms.svg": rooms_picture(_ROOT),
        "docs/reference/policy.md": policy_page(),
        "docs/reference/messages.md": messages_page(),
        "docs/reference/cli.md": cli_page(),
        "docs/reference/kind-entries.md": kind_entries_page(),
        "docs/reference/kinds.md": kinds_page(tested=how_tested()),
        "docs/reference/rights.md": rights_page(_ROOT),
        "manifests/base/webhooks.yaml": webhooks_page(),
        "manifests/base/rbac-workloads.yaml": workloads_role_page(),
    }
