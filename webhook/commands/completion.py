"""`topogate completion`: scripts that complete commands and options in a shell, and in kubectl's plugin."""

from __future__ import annotations

from typing import Final

import click

VARIABLE: Final = "_TOPOGATE_COMPLETE"
_OF_KUBECTL: Final = f"""\
#!/bin/sh
# kubectl_complete-topogate: put this on the PATH, executable; kubectl runs it to complete "kubectl topogate ...".
COMP_WORDS="topogate $*" COMP_CWORD=$# {VARIABLE}=bash_complete kubectl-topogate | cut -d, -f2
echo :4
"""


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish", "kubectl")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell; kubectl: the script kubectl_complete-topogate of the plugin.

    \b
    Example:
      source <(topogate completion bash)
      topogate completion zsh > "${fpath[1]}/_topogate"
      topogate completion fish > ~/.config/fish/completions/topogate.fish
    """  # noqa: D301 - click wants the backspace itself
    if shell == "kubectl":
        click.echo(_OF_KUBECTL, nl=False)
        return
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    complete = found(context.find_root().command, {}, "topogate", VARIABLE)
    # Not `source`: it runs the shell to look at its version.
    click.echo(complete.source_template % complete.source_vars())
