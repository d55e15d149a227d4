#!/bin/sh
# Print the exact versions of an environment as constraints for pip, without the build of torch.
# Usage: freeze.sh PIP
set -eu
echo '# The exact versions that `make lab`, `make test` and binder/ install: made by `make constraints`.'
"$1" freeze --all --exclude-editable --exclude memowidgets --exclude pip |
    grep -v -E '^-e |@ file:' |
    sed -E 's/^(torch==[^+]+)\+.*/\1/' |
    LC_ALL=C sort -f
