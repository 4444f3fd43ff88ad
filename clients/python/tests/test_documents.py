"""The dataclasses have the fields of the JSON Schemas, with their types, and no others."""

import dataclasses
import html.parser
import json
import re
import typing
import unittest
from typing import Any, Dict, Iterator, Mapping, Set, Tuple

from support import ROOT

from evalbox import Evaluation, Leaderboard, Outcome, Result
from evalbox import _model

OURS = {"document", "final", "summary", "file"}  # fields that are not of the document
SIMPLE = {"string": str, "integer": int, "number": float, "boolean": bool}


def expected(schema: Mapping[str, Any], defs: Mapping[str, Any], optional: bool) -> Tuple[Any, bool]:
    """The type of a field, and whether it may be null. Objects are their schema."""
    while "$ref" in schema:
        schema = defs[schema["$ref"].rsplit("/", 1)[1]]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    null = "null" in kinds
    kinds = [kind for kind in kinds if kind != "null"]
    if not kinds:
        return Any, False
    if kinds[0] == "array":
        return (schema["items"],), False
    if kinds[0] == "object":
        return schema, null or optional
    return SIMPLE[kinds[0]], null


class Schemas(unittest.TestCase):
    def compare(self, cls: Any, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> None:
        names = {entry.name: entry for entry in dataclasses.fields(cls) if entry.name not in OURS}
        self.assertEqual(set(names), set(schema["properties"]), cls)
        hints = typing.get_type_hints(cls)
        for name, field in schema["properties"].items():
            required = name in schema.get("required", ())
            default = names[name].default is not dataclasses.MISSING
            self.assertNotEqual(required, default, f"{cls.__name__}.{name} has a default and is required, or neither")
            self.check(hints[name], *expected(field, defs, not required), defs, f"{cls.__name__}.{name}")

    def check(self, hint: Any, want: Any, null: bool, defs: Mapping[str, Any], where: str) -> None:
        if null:
            self.assertIs(typing.get_origin(hint), typing.Union, where)
            hint = typing.get_args(hint)[0]
        if isinstance(want, tuple):
            self.assertIs(typing.get_origin(hint), tuple, where)
            self.check(typing.get_args(hint)[0], *expected(want[0], defs, False), defs, where)
        elif isinstance(want, dict) and dataclasses.is_dataclass(hint):
            self.compare(hint, want, defs)
        elif isinstance(want, dict):
            self.assertNotIn("properties", want, where)
            self.assertIn("Mapping", str(hint), where)
        else:
            self.assertEqual(hint, want, where)

    def test_result(self) -> None:
        schema = json.loads((ROOT / "result/schema.json").read_text())
        self.compare(Result, schema, schema["$defs"])

    def test_outcome(self) -> None:
        schema = json.loads((ROOT / "harness/contract/outcome.schema.json").read_text())
        self.compare(Outcome, schema, schema["$defs"])

    def test_evaluation(self) -> None:
        """Evaluations have no schema. A test in Go compares their fields with this table."""
        page = (ROOT / "docs/evaluate.md").read_text()
        table = page.split("| field | type | meaning |\n|---|---|---|\n")[1].split("\n\n")[0]
        documented = {name for row in table.splitlines() for name in re.findall("`([^`]*)`", row.split("|")[1])}
        self.assertEqual(set(fields(Evaluation)), documented)


def fields(cls: Any, prefix: str = "") -> Iterator[str]:
    for entry in dataclasses.fields(cls):
        if entry.name in OURS:
            continue
        yield prefix + entry.name
        hint = typing.get_type_hints(cls)[entry.name]
        for inner in (hint, *typing.get_args(hint)):
            if dataclasses.is_dataclass(inner):
                yield from fields(inner, prefix + entry.name + ".")


class Strict(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: Set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)


class Texts(unittest.TestCase):
    evil = "<script>alert(1)</script>"

    def row(self, **more: Any) -> Dict[str, Any]:
        values: Dict[str, Any] = {entry.name: None for entry in dataclasses.fields(Evaluation)}
        return {**values, "name": self.evil, "failure": self.evil, "why": self.evil, "exit_code": 1, **more}

    def tags(self, text: str) -> Set[str]:
        parser = Strict()
        parser.feed(text)
        return parser.seen

    def test_html_is_escaped(self) -> None:
        row = self.row(duration_seconds=1.0, warnings=[self.evil], error_summary=self.evil, error_traceback=None)
        board = Leaderboard.of({"metric_direction": "", "baseline_value": None, "ranks": [0], "evaluations": [row]})
        self.assertEqual(self.tags(board._repr_html_()), {"table", "tr", "th", "td"})
        self.assertEqual(self.tags(Evaluation.of(row)._repr_html_()), {"div", "span", "pre"})
        self.assertIn(self.evil, str(board))

    def test_unknown_fields_are_kept(self) -> None:
        row = Evaluation.of(self.row(new_field=[1], warnings=None))
        self.assertEqual((row.document["new_field"], row.warnings), ([1], ()))

    def test_missing_fields_are_reported(self) -> None:
        with self.assertRaisesRegex(_model.SandboxError, "has no 'id'\nhint: .*older"):
            Result.of({"schema": "evalbox/result/v1"})


if __name__ == "__main__":
    unittest.main()
