#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""No class of the product has more than 20 public functions.

    class_size.py ROOT...

Constructors, destructors, assignments, and what is deleted or a friend do not count; functions of nested classes are
theirs. Reads what the sources are laid out like, not all of C++.
"""
import os
import re
import sys

MOST = 20
HEAD = re.compile(r"\b(class|struct)\s+(?:\[\[[^\]]*\]\]\s*|alignas\([^)]*\)\s*)*(\w+)(?:<[^<>]*>)?(?:\s+final)?\s*(?::[^;{}]*)?$")
SKIP = re.compile(r"^\s*(using|typedef|friend|static_assert|enum|template\s*<[^;{}]*>\s*friend)\b|=\s*(delete|default)\s*$")


def stripped(text):
    """Without comments, literals and preprocessor lines."""
    text = re.sub(r'R"\((.|\n)*?\)"', '""', text)
    text = re.sub(r"//[^\n]*|/\*(.|\n)*?\*/", "", text)
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    text = re.sub(r"'(\\.|[^'\\\n])'", "' '", text)
    return re.sub(r"^[ \t]*#(\\\n|[^\n])*", "", text, flags=re.M)


def is_function(statement, name):
    statement = re.sub(r"\[\[[^\]]*\]\]", "", statement).strip()
    statement = re.sub(r"^(template\s*<[^()]*?>\s*|requires\s*\([^()]*\)\s*)+", "", statement)
    if not statement or SKIP.search(statement) or "operator" in statement:
        return False
    call = re.match(r"[^(=]*?([~\w]+)\s*\(", statement)
    return bool(call) and call.group(1) not in (name, "~" + name, "alignas", "decltype")


def public_functions(text):
    """Yields (class, number) for every class of a file."""
    scopes = []  # [class or None, access, functions]
    start = 0
    for place, char in enumerate(text):
        if char not in "{};:":
            continue
        statement = text[start:place]
        inside = scopes[-1] if scopes else None
        if char == ":":
            label = re.search(r"(public|protected|private)\s*$", statement)
            if inside and inside[0] and label and text[place + 1 : place + 2] != ":":
                inside[1] = label.group(1)
                start = place + 1
            continue
        if char == "{":
            head = HEAD.search(statement)
            is_class = head and "enum" not in statement.split(head.group(0))[0][-8:]
            if inside and inside[0] and inside[1] == "public" and not is_class and is_function(statement, inside[0]):
                inside[2] += 1
            if is_class:
                scopes.append([head.group(2), "private" if head.group(1) == "class" else "public", 0])
            else:
                scopes.append([None, "", 0])
        elif char == "}":
            closed = scopes.pop() if scopes else [None, "", 0]
            if closed[0]:
                yield closed[0], closed[2]
        elif inside and inside[0] and inside[1] == "public" and is_function(statement, inside[0]):
            inside[2] += 1
        start = place + 1


def main(roots):
    seen, bad = 0, 0
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in sorted(names):
                if not name.endswith((".h", ".cc")):
                    continue
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    for which, count in public_functions(stripped(file.read())):
                        seen += 1
                        if os.environ.get("SHOW") and count > 14:
                            print(f"{path}: {which} {count}")
                        if count > MOST:
                            bad += 1
                            print(f"{path}: {which} has {count} public functions, more than {MOST}")
    if seen == 0:
        print("there are no classes")
    return 1 if bad or seen == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
