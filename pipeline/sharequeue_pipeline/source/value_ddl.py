"""Reading `valueSchema`: whether Spark can parse it, and what is wrong otherwise. Pure.

    columns   name [:] type [NOT NULL] [COMMENT 'text'], …
    type      ARRAY<type> | MAP<type, type> | STRUCT<columns> | DECIMAL[(precision[, scale])] | INT | STRING | …

Spark parses it inside a schema of all columns, and its error shows that whole schema over several lines, with a
position that the user cannot find. So it is checked before. Source: SparkSQL's grammar (`dataType`, `complexColType`),
with the types that JSON can hold.
"""

import re
from typing import Final

from sharequeue_pipeline.errors import PipelineError

_TOKEN: Final = re.compile(r"""\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|\w+|[<>(),:]|\S)""")
_END: Final = "its end"
PLAIN: Final = frozenset(
    (
        "boolean",
        "byte",
        "tinyint",
        "short",
        "smallint",
        "int",
        "integer",
        "long",
        "bigint",
        "float",
        "real",
        "double",
        "string",
        "date",
        "timestamp",
        "timestamp_ntz",
        "timestamp_ltz",
        "binary",
    )
)
DECIMALS: Final = frozenset({"decimal", "dec", "numeric"})
LENGTHS: Final = frozenset({"char", "character", "varchar"})


def check(text: str, *, whole: bool) -> None:
    """Check the text of a schema. `whole`: it is one type, not a list of columns.

    Raises: PipelineError: it cannot be read; the text says where and why.
    """
    reader = _Reader(text)
    if whole:
        reader.type()
    else:
        reader.columns(_END)
    reader.expect(_END, "a comma" if not whole else _END)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(match[1], match.start(1)) for match in _TOKEN.finditer(text)]
        self._tokens.append((_END, len(text)))
        self._at = 0

    @property
    def _token(self) -> str:
        return self._tokens[self._at][0]

    def _take(self) -> str:
        token = self._token
        if token != _END:
            self._at += 1
        return token.lower()

    def _takes(self, wanted: str) -> bool:
        found = self._token.lower() == wanted
        if found and wanted != _END:
            self._at += 1
        return found

    def expect(self, wanted: str, or_else: str | None = None) -> None:
        if not self._takes(wanted):
            raise self._fault(f"{wanted if or_else in (None, wanted) else f'{or_else} or {wanted}'} belongs there")

    def _fault(self, why: str) -> PipelineError:
        token, start = self._tokens[self._at]
        place = _END if token == _END else f"{token} (character {start + 1})"
        return PipelineError(
            f"the option valueSchema cannot be read: {self._text!r}, at {place}: {why}; it is columns such as "
            "id INT, at TIMESTAMP, or one type such as array<int>"
        )

    def columns(self, end: str) -> None:
        """Read columns up to `end`, which is left."""
        while True:
            if not re.fullmatch(r"\w+|`.*`", self._token, re.S):
                raise self._fault("the name of a column belongs there")
            self._take()
            self._takes(":")
            self.type()
            if self._takes("not"):
                self.expect("null")
            if self._takes("comment") and not re.match("['\"]", self._take()):
                self._at -= 1
                raise self._fault("a comment in quotes belongs there")
            if self._token == end or not self._takes(","):
                return

    def type(self) -> None:
        name = self._token.lower()
        if name in PLAIN:
            self._take()
            if name == "string" and self._takes("collate"):
                self._take()
        elif name in DECIMALS or name in LENGTHS:
            self._take()
            if name in LENGTHS or self._token == "(":
                self._numbers(2 if name in DECIMALS else 1)
        elif name in ("array", "map", "struct"):
            self._take()
            self.expect("<")
            if name == "struct" and self._token != ">":
                self.columns(">")
            elif name != "struct":
                self.type()
            if name == "map":
                self.expect(",")
                self.type()
            self.expect(">")
        else:
            raise self._fault("a type that JSON can hold belongs there")

    def _numbers(self, most: int) -> None:
        self.expect("(")
        for number in range(most):
            if number and not self._takes(","):
                break
            if not self._token.isdecimal():
                raise self._fault("a number belongs there")
            self._take()
        self.expect(")")
