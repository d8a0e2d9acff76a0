"""The cells of a stored notebook as HTML: text, quiet code, and outputs."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import CppLexer, PythonLexer

from worklog.site.pictures import Pictures

MAGIC = "%%"  # before the name of a cell whose other lines are CUDA
LONG = 6  # lines; longer Python is folded, since its output is what a reader looks for
CHART_WIDTH = 700  # pixels, of a picture that states no width
COLUMNS = re.compile(r"\S {2,}\S")  # a line of text with more than one column
FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True)
LISTING = re.compile(r"(<pre\b.*?</pre>|<code\b.*?</code>)", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
# A number and its unit stay in one line, and so do the sides of a tile.
UNIT = re.compile(r"(?<=\d) (?=(?:%|µs|ms|s|GB|TB|MiB|KiB|kB|W|MHz|GHz|TB/s|GB/s|TFLOP/s)(?![\w]))")
SIDES = re.compile(r"(?<=[\dA-Z]) x (?=[\dA-Z])")
NO_BREAK = "\u00a0"


@dataclass(frozen=True)
class LabCall:
    """The call of a function of `lab` in the last line of a cell."""

    function: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]


def lab_call(cell: Any) -> LabCall | None:
    """Return the call that a cell ends with.

    None if it ends with something else, or an argument isn't a literal.
    """
    if cell.cell_type != "code" or cell.source.startswith(("%", "!")):
        return None
    try:
        last = ast.parse(cell.source).body[-1]
    except (SyntaxError, IndexError):
        return None
    match last:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("lab"), function), arguments, options)):
            pass
        case _:
            return None
    try:
        values = tuple(ast.literal_eval(argument) for argument in arguments)
        by_name = {str(option.arg): ast.literal_eval(option.value) for option in options}
    except ValueError:
        return None
    return LabCall(function, values, by_name)


def text_html(source: str) -> str:
    """Return the HTML of a text cell."""
    from nbconvert.filters.markdown_mistune import markdown2html_mistune  # takes a second

    # the CUDA of a magic cell in a listing
    source = source.replace(f"```python\n{MAGIC}", f"```cpp\n{MAGIC}")
    html = str(markdown2html_mistune(source))
    # the link of each heading to itself
    html = re.sub(r'<a class="anchor-link".*?</a>', "", html)
    return without_breaks(html)


def without_breaks(html: str) -> str:
    """Return HTML in which no line ends between a number and its unit, or in an option.

    The text of listings and of commands stays as it is, since readers copy it.
    """
    parts = []
    for part in LISTING.split(html):
        if part.startswith("<code"):
            parts.append(OPTION.sub(r'<span class="option">\g<0></span>', part))
        elif part.startswith("<pre"):
            parts.append(part)
        else:
            parts.append(SIDES.sub(f"{NO_BREAK}x{NO_BREAK}", UNIT.sub(NO_BREAK, part)))
    return "".join(parts)


def code_html(cell: Any) -> str:
    """Return a cell's code: quiet, and folded if it only prepares or is long."""
    listing = highlighted(cell.source)
    if not _is_folded(cell):
        return f'<div class="code">{listing}</div>'
    lines = len(cell.source.splitlines())
    count = "1 line" if lines == 1 else f"{lines} lines"
    return f'<details class="code"><summary>code, {count}</summary>{listing}</details>'


def highlighted(source: str) -> str:
    """Return source code as a listing. The lines below a magic are CUDA."""
    magic = ""
    lexer: Lexer = PythonLexer()
    if source.startswith(MAGIC):
        magic, _, source = source.partition("\n")
        magic = f'<span class="c1">{escape(magic)}</span>\n'
        lexer = CppLexer()
    code = highlight(source, lexer, FORMATTER).rstrip("\n")
    return f'<pre tabindex="0"><code>{magic}{code}</code></pre>'


def outputs_html(outputs: Sequence[Any], pictures: Pictures) -> str:
    """Return a cell's outputs.

    pictures: gets the files of the outputs' pictures
    """
    return "".join(_output_html(output, pictures) for output in outputs)


def _is_folded(cell: Any) -> bool:
    """Return whether a cell's code is folded: it only imports, or it is long Python."""
    source = cell.source
    if source.startswith(MAGIC) or "__global__" in source:
        return False
    lines = [line for line in source.splitlines() if line.strip()]
    is_setup = all(re.match(r"(%|from |import )", line) for line in lines)
    return is_setup or len(lines) > LONG


def _output_html(output: Any, pictures: Pictures) -> str:
    """Return one output: a picture, HTML, or text."""
    if output.output_type == "stream":
        return _text_output(output.text)
    data = output.get("data", {})
    if "image/png" in data:
        about = output.metadata.get("image/png", {})
        alt = about.get("alt", data.get("text/plain", ""))
        picture = pictures.add(data["image/png"], alt, about.get("width", CHART_WIDTH))
        return f'<figure class="chart"><div class="scroll" tabindex="0">{picture}</div></figure>'
    if "text/html" in data:
        html = re.sub(r"<pre(?! tabindex)", '<pre tabindex="0"', data["text/html"])
        # an empty header is a cell
        html = re.sub(r"<th([^>]*)>(?:\s|&nbsp;)*</th>", r"<td\1></td>", html)
        return f'<div class="output" tabindex="0">{html}</div>'
    return _text_output(data.get("text/plain", ""))


def _text_output(text: str) -> str:
    """Return an output of plain text, in which sentences wrap and rows of a table don't."""
    if not text.strip():
        return ""
    lines = []
    for line in text.split("\n"):
        html = escape(line)
        lines.append(f'<span class="cells">{html}</span>' if COLUMNS.search(line) else html)
    content = "\n".join(lines)
    return f'<pre class="output" tabindex="0">{content}</pre>'
