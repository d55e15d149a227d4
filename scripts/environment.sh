#!/bin/sh
# Create the virtual environment of `make lab` and `make test`, or print one line that says what is missing.
# Usage: environment.sh PYTHON VENV [TORCH_INDEX]
set -u
python=$1 venv=$2 torch_index=${3-}
log=$venv/install.log

say() { printf 'memowidgets: %s\n' "$1" >&2; exit 1; }

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
    say "there is no Python called '$python': install Python 3.11 or newer, or name one as in 'make lab PYTHON=python3.12'."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    say "'$python' is Python $version, but 3.11 or newer is needed: install one, or name it as in 'make lab PYTHON=python3.12'."

[ -x "$venv/bin/pip" ] || {
    rm -rf "$venv"
    "$python" -m venv "$venv" >/dev/null 2>&1 ||
        say "'$python -m venv $venv' failed: on Debian and Ubuntu install python3-venv ($python is Python $version), or see whether this folder can be written to."
}

# pip compiles on one core; compile() does it afterwards, on all.
install() { "$venv/bin/pip" install --no-compile --constraint constraints.txt ${torch_index:+--extra-index-url "$torch_index"} "$@" >>"$log" 2>&1; }

# Two fifths of all code are hardly ever loaded: tests of packages, models of transformers, parts of torch.
unused='/tests?/|/transformers/models/|/torch/(_inductor|testing|onnx)/|/sympy/physics/|/site-packages/(aiohttp|gguf|lightning_fabric|mypy|mypyc|networkx|pip|pydantic|pymdownx|pytorch_lightning|setuptools|torchgen|trl)/'
compile() { "$venv/bin/python" -m compileall -q -j 0 -x "$unused" "$venv"/lib/python*/site-packages >>"$log" 2>&1 || true; } # some files are wrong on purpose

echo "memowidgets: installing into $venv (minutes the first time; details in $log)"
: >"$log" || say "$venv cannot be written to."
install hatchling editables && install --no-build-isolation --editable '.[all,docs,dev]' && compile && exit 0

grep -q -i -E 'No space left' "$log" &&
    say "the disk is full: about 3 GB are needed, and 8 GB on Linux with a GPU."
grep -q -i -E 'connection (broken|error|refused|reset)|timed out|name resolution|Max retries|ProxyError|SSLError|No route' "$log" &&
    say "no package index can be reached: check the connection and 'pip config list', then run make again; details in $log."
say "installing failed: $(grep -m 1 -i '^ERROR' "$log" || tail -n 1 "$log") (details in $log)"
