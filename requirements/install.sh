#!/bin/bash
# Makes .venv from the lock, or completes it: `make` calls this when it is missing or older than what it is made from.
# An interrupted run leaves no stamp, so the next one goes on where it stopped.
# Usage: requirements/install.sh STAMP        PYTHON=… in the environment names the interpreter to use.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=$1
lock=requirements/cpu.lock
venv=.venv
cpu_index=https://download.pytorch.org/whl/cpu

say() { printf '%s\n' "$*"; }
fail() {
    printf 'mmspec install: %s\n' "$*" >&2
    exit 1
}
supported() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }

# Prints the first interpreter that will do.
choose_python() {
    local candidate without_venv=
    # shellcheck disable=SC2086  # PYTHON may name several
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
        # A pyenv shim can be on the PATH and still refuse to run, so each is tried.
        supported "$candidate" || continue
        if "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
        without_venv=${without_venv:-$candidate}
    done
    if [ -n "$without_venv" ]; then
        fail "$without_venv cannot make virtual environments; install its venv package (Debian: apt install python3-venv)"
    fi
    if [ -n "${PYTHON:-}" ]; then
        fail "PYTHON=$PYTHON does not run as Python 3.11, 3.12 or 3.13; name one that does, or leave PYTHON out"
    fi
    fail "no Python 3.11, 3.12 or 3.13 on the PATH; install one, or say make PYTHON=/path/to/python3.11"
}

# The scripts of a virtual environment hold absolute paths, so one that was moved with its folder is made anew.
is_whole() {
    supported "$venv/bin/python" && head -n 3 "$venv/bin/pip" 2>/dev/null | grep -qF "$(pwd -P)/$venv/bin/python"
}

make_venv() {
    is_whole && return
    check_space
    local python
    python=$(choose_python)
    say "making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv" || fail "$python could not make $PWD/$venv; is this folder writable?"
}

check_space() {
    local free_mb
    free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
    [ "$free_mb" -ge 6000 ] || fail "only $free_mb MB are free in $PWD; the environment needs 6000 MB"
}

# Prints the option that adds PyTorch's CPU index, when it answers within a few seconds. The probe runs in a thread,
# since looking up a name can hang for longer than any time-out that urllib knows.
index_option() {
    "$venv/bin/python" - "$cpu_index/torch/" <<'PROBE' && printf '%s' "--extra-index-url=$cpu_index"
import os, sys, threading, urllib.request

def probe():
    try:
        with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
            os._exit(0 if answer.status == 200 else 1)
    except Exception:
        os._exit(1)

threading.Thread(target=probe, daemon=True).start()
threading.Event().wait(8)
os._exit(1)
PROBE
}

install_torch() {
    local option
    option=$(index_option) || say "PyTorch's CPU index does not answer: taking torch from the configured package index"
    # Only these two ask the second index, so that nothing else can come from there.
    # shellcheck disable=SC2046,SC2086
    pip install --quiet --no-deps $option $(grep -E '^(torch|torchvision)==' "$lock")
}

# A CUDA build needs NVIDIA's libraries even where there is no GPU.
complete_cuda_torch() {
    "$venv/bin/python" -c 'import torch.version, sys; sys.exit(torch.version.cuda is not None)' 2>/dev/null && return
    say "this torch is a CUDA build: adding the libraries that it needs (about 2 GB)"
    # shellcheck disable=SC2046
    pip install --quiet $(grep -E '^torch==' "$lock")
}

# A function, since bash reads a script as it goes: one that changes under it (git pull) must not mix with the new.
main() {
    make_venv
    say "installing the packages of $lock (3.5 GB; a few minutes)"
    pip install --quiet "$(grep -E '^pip==' "$lock")"
    install_torch
    pip install --quiet --no-deps -r "$lock"
    complete_cuda_torch
    # setuptools warns that an editable install follows the sources, which is what it is for.
    PYTHONWARNINGS=ignore pip install --quiet --no-deps --no-build-isolation --editable .
    "$venv/bin/python" -m mmspec.environment
    touch "$stamp"
}

main
exit
