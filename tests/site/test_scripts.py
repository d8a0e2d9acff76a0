"""The check of JavaScript: it has each file, and reports a finding at its place."""

from tests.site import scripts
from worklog.site.scripts import Script


def test_each_file_is_checked():
    checked = {path for entry in scripts.SCRIPTS.values() for path in entry.script.files}
    for folder in scripts.FOLDERS:
        assert {*(scripts.ROOT / folder).rglob("*.js")} <= checked


def test_a_finding_has_its_file_and_line(monkeypatch, tmp_path):
    monkeypatch.setattr(scripts, "ROOT", tmp_path)
    first = tmp_path / "first.js"
    second = tmp_path / "second.js"
    first.write_text("const used = 1;\nconst unused = 2;\n")
    second.write_text("const text = used.toFixed(1);\ntext.length = text * used;\n")
    monkeypatch.setattr(Script, "files", [first, second])
    monkeypatch.setattr(scripts, "SCRIPTS", {"page": scripts.Checked(Script((), ()), ("text",))})
    folder = tmp_path / "made"
    folder.mkdir()
    scripts.write_scripts(folder)
    assert scripts.linted(folder) == ["first.js:2: no-unused-vars: `unused` is never used"]
    errors = "\n".join(scripts.type_errors(folder))
    assert "at second.js:2" in errors and "first.js" not in errors


def test_a_name_that_one_of_two_scripts_uses_is_used(monkeypatch, tmp_path):
    monkeypatch.setattr(scripts, "ROOT", tmp_path)
    shared = tmp_path / "shared.js"
    shared.write_text("const shared = 1;\n")
    monkeypatch.setattr(Script, "files", [shared])
    used = scripts.Checked(Script((), ()), ("shared",))
    monkeypatch.setattr(scripts, "SCRIPTS", {"a": used, "b": scripts.Checked(Script((), ()))})
    folder = tmp_path / "made"
    folder.mkdir()
    scripts.write_scripts(folder)
    assert scripts.linted(folder) == []
