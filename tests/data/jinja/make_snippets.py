#!/usr/bin/env python3
"""Writes snippets.json: short templates and what jinja2 3.1 makes of them.

The environment is that of Hugging Face transformers' chat templates. Run it with jinja2 installed after
changing SNIPPETS; the C++ test compares src/jinja with the result. A snippet that fails in jinja2 must
fail in ours ("error": true); the wording is Python's and not compared.
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

CONTEXT = {
    "s": "Hello, World",
    "empty": "",
    "u": "Grüße, Ω 日本 😀",
    "n": 7,
    "neg": -3,
    "f": 2.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "l": [3, 1, 2],
    "words": ["pear", "Apple", "fig"],
    "d": {"b": 1, "a": [1, 2], "c": {"x": None}},
    "users": [
        {"name": "Bo", "age": 30, "admin": True, "tags": ["x"]},
        {"name": "al", "age": 25, "admin": False, "tags": []},
        {"name": "Cy", "age": 30, "tags": ["y", "z"]},
    ],
    "html": "<a href='x'>1 & 2</a>",
    "lines": "one\n  two\n\nthree\n",
    "nested": [[1, [2, 3]], [4]],
}

SNIPPETS = [line for line in (pathlib.Path(__file__).parent / "snippets.txt").read_text().split("\n---\n") if line]


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = datetime.datetime(2026, 1, 15, 12, 30).strftime
    cases = []
    for source in SNIPPETS:
        case = {"source": source}
        try:
            case["text"] = environment.from_string(source).render(**CONTEXT)
        except Exception as error:  # whatever jinja2 or Python raises
            case["error"] = f"{type(error).__name__}: {error}"
        cases.append(case)
    out = pathlib.Path(__file__).parent / "snippets.json"
    out.write_text(json.dumps({"context": CONTEXT, "cases": cases}, ensure_ascii=False, indent=1) + "\n")
    print(f"{len(cases)} snippets, {sum('error' in case for case in cases)} of them errors")


if __name__ == "__main__":
    main()
