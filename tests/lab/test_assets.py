"""The scripts and style sheets that widgets and pages hold."""

from pathlib import Path

from worklog.lab import assets

FOLDER = Path(assets.__file__).parent


def test_a_page_has_each_statement_of_a_script_and_no_comment():
    script = assets.assets("dom.js")
    source = (FOLDER / "dom.js").read_text(encoding="utf-8")
    lines = [line.strip() for line in source.splitlines()]
    comments = ("//", "/**")
    assert script.splitlines() == [line for line in lines if line and not line.startswith(comments)]
    assert len(script) < len(source)


def test_a_type_is_a_comment():
    typed = "/** @type {number} */\nconst a = 1;\n  /**\n   * @param {number} b\n   */\nf(b);\n"
    assert assets.without_comments(typed) == "const a = 1;\nf(b);"


def test_the_last_script_of_a_module_exports_what_a_notebook_calls():
    script = assets.widget_module(*assets.ACCESS_SCRIPTS)
    assert script.splitlines()[-1] == "export default { render };"
    assert script.count("export ") == 1


def test_a_style_sheet_stays_as_it_is():
    text = (FOLDER / "access.css").read_text(encoding="utf-8")
    assert assets.assets("access.css") == text.strip()
