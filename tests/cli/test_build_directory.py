"""Where build products go."""

from pathlib import Path

from cli.build_directory import PROJECT_ROOT, build_root


def test_the_build_directory(monkeypatch, tmp_path):
    assert (PROJECT_ROOT / "pyproject.toml").is_file()
    monkeypatch.delenv("ADAGP_BUILD_DIR", raising=False)
    assert build_root() == PROJECT_ROOT / "build"
    monkeypatch.setenv("ADAGP_BUILD_DIR", "")
    assert build_root() == PROJECT_ROOT / "build"
    monkeypatch.setenv("ADAGP_BUILD_DIR", str(tmp_path / "other"))
    assert build_root() == Path(tmp_path, "other").resolve()
