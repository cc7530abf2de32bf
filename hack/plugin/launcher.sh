#!/bin/sh
# A Python program in one file. First a look for a Python that it can run on, because the message of what follows below
# is hundreds of lines long; then what follows: unpack the program into the cache directory (once), and run it.
fits=""
for python in @NAMES@; do
    if command -v "$python" >/dev/null 2>&1; then fits=1; break; fi
done
if [ -z "$fits" ] && python3 -c 'import sys; sys.exit(not @LOWEST@ <= sys.version_info[:2] <= @HIGHEST@)' 2>/dev/null; then
    fits=1
fi
if [ -z "$fits${PEX_PYTHON:-}${PEX_PYTHON_PATH:-}" ]; then
    # With the working directory before the library, `import platform` would run a file of that name there.
    has=$(python3 -c 'import sys; print("is", sys.version.split()[0])' 2>/dev/null) || has="is not found"
    echo "kubectl-topogate: needs Python @VERSIONS@, python3 $has: put one of @NAMES@ on the PATH" >&2
    exit 2
fi
PEX_ROOT="${PEX_ROOT:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/topogate/plugin}"
export PEX_ROOT
# An upgrade of Python may take away the one that the unpacked program runs on: unpack it again.
for python in "$PEX_ROOT"/venvs/*/*/*/bin/python; do
    if [ -L "$python" ] && [ ! -e "$python" ]; then rm -rf "${python%/bin/python}"; fi
done
