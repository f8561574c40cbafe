#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Includes go down only.

    layers.py ROOT

The order below says which folders a folder may include from: those of its own row or of rows below it that it names. A
file may always include from its own folder.
"""
import os
import re
import sys

# Folder: those it may include from. What they may include from comes with it.
MAY_INCLUDE = {
    "common/base": [],
    "common/accounting": ["common/base"],
    "common/ports": ["common/base"],
    "common/rdma": ["common/accounting", "common/ports"],
    "cpc/loop": ["common/rdma"],
    "cpc/cm": ["cpc/loop"],
    "cpc/queue_pairs": ["cpc/loop"],
    "cpc/core": ["cpc/queue_pairs"],
    "cpc/manager": ["cpc/core"],
    "cpc/oob": ["cpc/cm", "cpc/manager"],
    "cpc/rdmacm": ["cpc/cm", "cpc/manager"],
    "cpc/registry": ["cpc/oob", "cpc/rdmacm"],
    "btl_fabric/base": ["cpc/registry"],
    "btl_fabric/path": ["btl_fabric/base"],
    "btl_fabric/peer": ["btl_fabric/path"],
    "btl_fabric/mca": ["btl_fabric/peer"],
}
OPEN_MPI_ENTRY = "btl_fabric/base/opal.h"  # the only file that includes Open MPI's headers, but for those that are only C
OURS = re.compile(r'^\s*#\s*include\s+"((?:btl_fabric|cpc|common|test|contrib)/[^"]+)"', re.M)
ANY_QUOTED = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
OPEN_MPI = re.compile(r'^\s*#\s*include\s+["<]((?:opal|ompi|orte)(?:_config\.h|/)[^">]*)', re.M)


def below(folder, seen=None):
    seen = set() if seen is None else seen
    for lower in MAY_INCLUDE[folder]:
        if lower not in seen:
            seen.add(lower)
            below(lower, seen)
    return seen


def sources(root):
    for top in ("btl_fabric", "cpc", "common"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".h", ".cc")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def complaints(root):
    for path in sources(root):
        folder = os.path.dirname(path)
        if folder not in MAY_INCLUDE:
            yield f"{path}: the folder has no place in the order of layers.py"
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        if path != OPEN_MPI_ENTRY:
            for header in OPEN_MPI.findall(text):
                yield f"{path} includes {header}: Open MPI's headers come in through {OPEN_MPI_ENTRY}"
        for included in ANY_QUOTED.findall(text):
            if path != OPEN_MPI_ENTRY and not OURS.match(f'#include "{included}"'):
                yield f"{path} includes {included}: ours are named from the top, others in <>"
        for included in OURS.findall(text):
            target = os.path.dirname(included)
            if target != folder and target not in below(folder):
                yield f"{path} includes {included}: {target} is not below {folder}"
    # The device in userspace is a device to everybody else.
    for folder, _, names in os.walk(os.path.join(root, "contrib/softhca")):
        for name in names:
            if name.endswith((".h", ".cc")):
                path = os.path.relpath(os.path.join(folder, name), root)
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    for included in ANY_QUOTED.findall(file.read()):
                        if not os.path.exists(os.path.join(root, "contrib/softhca", included)):
                            yield f"{path} includes {included}: softhca knows public headers only"


def main(arguments):
    root = arguments[1]
    found = list(complaints(root))
    for text in found:
        print(text)
    if not list(sources(root)):
        print("there are no sources")
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
