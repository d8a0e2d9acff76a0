"""The README at the width of GitHub's page."""

from pathlib import Path

from markdown_it import MarkdownIt

README = Path(__file__).parents[2] / "README.md"
GITHUB_PX = 880
STYLE = """<meta charset="utf-8"><style>
body { font: 16px/1.5 sans-serif; margin: 0; padding: 32px; box-sizing: border-box; width: 880px; }
pre, table { display: block; overflow: auto; max-width: 100%; } table { border-collapse: collapse; }
pre { padding: 16px; font-size: 85%; } th, td { padding: 6px 13px; border: 1px solid; } img { max-width: 100%; }
</style>"""
CUT_OFF = """() => [...document.querySelectorAll('html, pre, table')]
    .filter(element => element.scrollWidth > element.clientWidth).map(element => element.outerHTML.slice(0, 200))"""


def test_nothing_in_the_readme_scrolls_sideways(browser, tmp_path):
    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(README.read_text(encoding="utf-8"))
    written = tmp_path / "readme.html"
    written.write_text(STYLE + shown, encoding="utf-8")
    page = browser.new_page(viewport={"width": GITHUB_PX, "height": 1000})
    page.goto(written.as_uri())
    assert page.locator("pre, table").count() > 2
    assert page.evaluate(CUT_OFF) == []
    page.close()
