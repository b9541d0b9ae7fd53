"""The files that GitHub and Citation File Format tools read are valid. The workflows themselves run only on GitHub."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
SCHEMAS = {
    "vendor.github-workflows": sorted((GITHUB / "workflows").glob("*.yml")),
    "custom.github-workflows-require-timeout": [GITHUB / "workflows" / name for name in ("nightly.yml", "test.yml")],
    "vendor.github-issue-forms": [GITHUB / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "feature.yml")],
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


def validate(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    if schema == "vendor.citation-file-format":
        command += ["--force-filetype", "yaml"]
    return subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_match_their_schema(schema):
    check = validate(schema, *SCHEMAS[schema])
    assert check.returncode == 0, check.stdout + check.stderr


def test_a_wrong_workflow_does_not_match(tmp_path):
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("on: push\njobs: {test: {runs_on: ubuntu-latest}}\n", encoding="utf-8")
    assert validate("vendor.github-workflows", wrong).returncode == 1


def test_supported_python_versions_are_tested():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    workflow = (GITHUB / "workflows" / "test.yml").read_text(encoding="utf-8")
    versions = [version for version in ("3.10", "3.11", "3.12", "3.13", "3.14") if f"Python :: {version}" in project]
    assert f"python: {versions}".replace("'", '"') in workflow
