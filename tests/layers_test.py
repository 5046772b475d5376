#!/usr/bin/env python3
"""Fails when a folder of src/ includes what docs/architecture.md's table of folders doesn't allow it.

The table is the single source: a row is `| `src/NAME` | holds | a, b, c |`; words in the last column that are
not folders (libraries) are passed over. src/cli and src/testing may use everything.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNRESTRICTED = {"cli", "testing"}


def allowed_by_table(text: str) -> dict[str, set[str]]:
    rows = re.findall(r"^\| `src/(\w+)` \|.*\| ([^|]*) \|$", text, re.M)
    return {name: set(re.findall(r"\w+", uses)) | {name} for name, uses in rows}


def violations(allowed: dict[str, set[str]]) -> list[str]:
    found = []
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in {".h", ".cc"}:
            continue
        folder = path.relative_to(ROOT / "src").parts[0]
        if folder not in allowed:
            found.append(f"{path.relative_to(ROOT)}: src/{folder} is not in docs/architecture.md's table")
            continue
        if folder in UNRESTRICTED:
            continue
        is_test = path.stem.endswith(("_test", "_test_support", "_bench", "_fuzz"))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#include "(\w+)/', line)
            used = match and match.group(1)
            if used and used not in allowed[folder] and not (is_test and used == "testing"):
                found.append(f"{path.relative_to(ROOT)}:{number}: src/{folder} may not include {used}/")
            if re.match(r"\s*#include <(boost|nlohmann/json\.hpp|gtest|benchmark)", line) and path.suffix == ".h":
                found.append(f"{path.relative_to(ROOT)}:{number}: heavy header in a .h file: {line.strip()}")
    return found


def long_files() -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {n} lines, more than 500: split it by what it does"
        for path in sorted((ROOT / "src").rglob("*"))
        if path.suffix in {".h", ".cc"} and (n := len(path.read_text().splitlines())) > 500
    ]


def main() -> int:
    allowed = allowed_by_table((ROOT / "docs/architecture.md").read_text())
    if "base" not in allowed or allowed["base"] != {"base"} | (allowed["base"] - allowed.keys()):
        print("docs/architecture.md: no table of folders, or base uses another folder")
        return 1
    found = violations(allowed) + long_files()
    print("\n".join(found) or f"{len(allowed)} folders keep to their layers")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
