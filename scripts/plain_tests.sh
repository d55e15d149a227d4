#!/bin/sh
# Run the tests of what the plain install computes and shows, without torch, browsers or Jupyter.
# They are a part of `make test`, for environments that have little: the lowest versions of the
# dependencies, macOS and Windows. Usage: plain_tests.sh [OPTION OF PYTEST …]
set -eu
# Left out: what trains, compares with torch or another package, builds, or opens a browser.
for file in metrics/test_trace metrics/test_psmi charts/test_figures data/test_benchmarks \
    data/test_dataset; do
    set -- "--ignore=tests/$file.py" "$@"
done
unset CI # where a library that is missing is no reason to skip a test
exec python -m pytest tests/metrics tests/memorization tests/evaluation tests/charts tests/data \
    tests/audit/test_given.py tests/report/test_packing.py tests/house/test_package.py \
    -k "not wheel and not sdist and not metadata and not loads_what \
        and not that_its_arrays_come_from and not tensors and not run_like_others and not of_a_run_is \
        and not a_watched_loop" \
    "$@"
