"""Find words that this project no longer uses, in what people read: docs, strings, docstrings, comments and names.

    scripts/words.py              count them by kind; exit 1 where a kind has more than LIMITS allows
    scripts/words.py src docs     list those below these paths

WORDS are the terms that the glossary replaced. A name is matched word by word: `take_in` and `TakeIn` are "take in".
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

WORDS = (
    # vague or metaphorical
    r"nobody|whoever|somebody|none of|odd|oddity|oddities|mends?|mended|anew|meanwhile|for ever|at once|round again",
    r"(?:take|takes|taken|took) in|stands? for|go on|goes on|any more|a person|a defect|in doubt|in trouble|buried",
    r"by (?:itself|themselves)|of (?:its|their) own|time-outs?|under way|comes again|number that only grows",
    # terms with another name in the glossary; not "refused", which is right for what a remote or a database refuses
    r"bounces?|refusals?|scribe|desk|apart|crowd|too many wait|pulse|pulses|rescue|rescues|rescued|rescuer",
    r"(?:take|takes|taken|took) back|(?:give|gives|given|gave) back|strays?|outcasts?|rehears\w+|the books",
    r"the audit(?! (?:log|actor|reason))|upkeep|aftercare|pace|not called for now|questions?",
)
OLD = re.compile(rf"\b(?:{'|'.join(WORDS)})\b".replace(" ", r"\s+"), re.IGNORECASE)

ALLOWED = (
    # (path, text around the word, why it is right there); at most 20 lines
    ("*", r"a person (?:who|that) ", "a human being in general, not who decides"),
    (
        "*",
        r"(?:seconds|minutes|hour|commits) apart|told apart",
        "a distance in time, or telling two things from another",
    ),
    ("*", r"GET /bounces|late bounce|Bounces and complaints", "an e-mail that was returned"),
)

LIMITS = {"docs": 0, "strings": 0, "comments": 0, "names": 0}
"""How many of each kind are left. They only become fewer; the end is none."""


class Found(NamedTuple):
    kind: str
    path: str
    line: int
    word: str
    text: str


class Text(NamedTuple):
    kind: str
    line: int
    text: str


def main(arguments: Sequence[str]) -> int:
    if arguments:
        for found in sorted(search(ROOT, arguments)):
            print(f"{found.kind:8} {found.path}:{found.line}: {found.word}: {found.text}")
        return 0
    return report(list(search(ROOT)))


def report(found: Sequence[Found]) -> int:
    code = 0
    for kind, limit in LIMITS.items():
        count = sum(one.kind == kind for one in found)
        lower = f"; lower its limit in scripts/words.py from {limit}" if count < limit else ""
        print(f"{kind}: {count} old words{lower}")
        if count > limit:
            code = 1
            print(f"{kind}: more than {limit}; see scripts/words.py PATH", file=sys.stderr)
    return code


def search(root: Path, below: Sequence[str] = ("",)) -> Iterator[Found]:
    for file in sorted(readable(root)):
        path = file.relative_to(root).as_posix()
        if any(path.startswith(start.removeprefix("./")) for start in below):
            for text in texts(file, path):
                yield from old_words(path, text)


def readable(root: Path) -> Iterator[Path]:
    """The files that people read. Samples of providers' payloads are not ours to word."""
    yield from root.glob("*.md")
    yield from (root / "docs").rglob("*.md")
    for folder in ("src", "tests", "docs", "examples"):
        yield from (root / folder).rglob("*.py")
    yield from (root / "src").rglob("*.sql")
    yield from (root / "src").rglob("*.toml")


def texts(file: Path, path: str) -> Iterator[Text]:
    if file.suffix == ".md":
        yield from in_markdown(file)
    elif file.suffix == ".sql":
        yield from in_sql(file)
    elif file.suffix == ".toml":
        yield Text("strings", 1, file.read_text())
    elif path.startswith("tests/"):
        yield from test_names(file)
    else:
        yield from in_python(file)


def old_words(path: str, text: Text) -> Iterator[Found]:
    for match in OLD.finditer(text.text):
        around = " ".join(text.text[max(0, match.start() - 60) : match.end() + 60].split())
        if not any(Path(path).match(where) and re.search(what, around) for where, what, _ in ALLOWED):
            line = text.line + text.text.count("\n", 0, match.start())
            yield Found(text.kind, path, line, " ".join(match[0].lower().split()), around)


def in_markdown(file: Path) -> Iterator[Text]:
    text = file.read_text()
    if file.name == "CHANGELOG.md":  # what is released stays as it was
        text = "".join(re.split(r"(?m)^(?=## )", text)[:2])
    yield Text("docs", 1, text)


def in_sql(file: Path) -> Iterator[Text]:
    for number, line in enumerate(file.read_text().splitlines(), 1):
        code, _, comment = line.partition("--")
        yield Text("comments", number, comment)
        yield from (Text("strings", number, text) for text in re.findall(r"'([^']*)'", code))
        yield from (Text("names", number, spaced(name)) for name in re.findall(r"\w+", re.sub(r"'[^']*'", "", code)))


def in_python(file: Path) -> Iterator[Text]:
    yield Text("names", 1, spaced(file.stem))
    with file.open("rb") as source:
        comments = [token for token in tokenize.tokenize(source.readline) if token.type == tokenize.COMMENT]
    yield from (Text("comments", token.start[0], token.string) for token in comments)
    tree = ast.parse(file.read_bytes())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Text("comments" if id(node) in docstrings else "strings", node.lineno, node.value)
        elif (name := declared(node)) is not None:
            yield Text("names", getattr(node, "lineno", 1), spaced(name))


def declared(node: ast.AST) -> str | None:
    """The name that this node gives to something."""
    match node:
        case (
            ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name)
        ):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
    return None


def test_names(file: Path) -> Iterator[Text]:
    yield Text("names", 1, spaced(file.stem))
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Text("names", node.lineno, spaced(node.name))


def spaced(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
